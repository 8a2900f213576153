"""The templates for CI call what a person calls: make targets that are there, in one order, and keep no secret."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from tests.docs import PROJECT, commands

ORDER = ["lint-image", "lock-check", "build-image", "hygiene", "boot-image", "verify-image"]
GITHUB = PROJECT / "ci/github/build-image.yml"
GITLAB = PROJECT / "ci/gitlab/.gitlab-ci.yml"
# What the targets read; make takes variables from the environment.
VARIABLES = {"IMAGE", "FORMAT", "OUTPUT", "SIGN", "SIGNERS", "GOLDSMITH_STATE"}


def github_steps() -> list[dict[str, Any]]:
    (job,) = yaml.safe_load(GITHUB.read_text())["jobs"].values()
    return job["steps"]  # type: ignore[no-any-return]


def test_github_runs_the_targets_in_order_and_publishes_last() -> None:
    steps = github_steps()
    assert [step["run"] for step in steps if "run" in step] == [f"make {target}" for target in ORDER]
    assert "checkout" in steps[0]["uses"] and "upload-artifact" in steps[-1]["uses"]
    assert not any("if" in step or "continue-on-error" in step for step in steps)


def test_gitlab_runs_the_targets_in_order_and_publishes_on_success() -> None:
    data = yaml.safe_load(GITLAB.read_text())
    assert data["image"]["script"] == [f"make {target}" for target in ORDER]
    assert data["image"]["artifacts"]["when"] == "on_success"
    assert not {"before_script", "after_script", "allow_failure"} & (data.keys() | data["image"].keys())


def test_actions_are_pinned_and_may_only_read() -> None:
    text, data = GITHUB.read_text(), yaml.safe_load(GITHUB.read_text())
    assert data["permissions"] == {"contents": "read"}
    for step in github_steps():
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"])
            assert re.search(re.escape(step["uses"]) + r" # v\d+\.\d+\.\d+$", text, re.MULTILINE)
    # YAML 1.1 reads `on` as true
    assert "pull_request" not in data[True] and "pull_request_target" not in data[True]
    assert "secrets." not in text


@pytest.mark.parametrize("variables", [yaml.safe_load(GITHUB.read_text())["env"],
                                       yaml.safe_load(GITLAB.read_text())["variables"]])  # fmt: skip
def test_variables_are_those_of_the_makefile(variables: dict[str, str]) -> None:
    assert set(variables) == VARIABLES
    said = dry_run("build-image", variables) + dry_run("verify-image", variables)
    for name in VARIABLES - {"GOLDSMITH_STATE"}:
        assert variables[name] in said, name


@pytest.mark.parametrize("target", ORDER)
def test_each_target_is_one_line_that_calls_goldsmith(target: str) -> None:
    lines = [line for line in dry_run(target, {}).splitlines() if ".venv/bin/goldsmith" in line]
    assert len(lines) == 1
    verb = {"lint-image": "lint", "lock-check": "lock", "build-image": "build", "boot-image": "boot",
            "verify-image": "verify"}.get(target, target)  # fmt: skip
    assert lines[0].startswith(f".venv/bin/goldsmith {verb} ")


def test_warn_passes_and_nothing_else_does(tmp_path: Any) -> None:
    """make makes 2 of every exit code, so WARN has to be let through where it is told."""
    fake = tmp_path / "goldsmith_fake"
    for code, passes in ((0, True), (1, True), (2, False), (3, False), (4, False)):
        fake.write_text(f"#!/bin/sh\nexit {code}\n")
        fake.chmod(0o755)
        for target in ("lint-image", "lock-check"):
            argv = ["make", "--silent", f"goldsmith={fake}", "--assume-old=setup", target]
            done = subprocess.run(argv, cwd=PROJECT, capture_output=True, timeout=60)
            assert (done.returncode == 0) is passes, (target, code, done)


def test_the_page_shows_the_same_targets() -> None:
    page = [words[1] for words in commands(PROJECT / "docs/images-in-ci.md") if words[0] == "make"]
    assert page == ORDER


def dry_run(target: str, variables: dict[str, str]) -> str:
    environment = {"PATH": "/usr/bin:/bin", **variables}
    argv = ["make", "--dry-run", target]
    return subprocess.run(
        argv, cwd=PROJECT, check=True, capture_output=True, text=True, timeout=60, env=environment
    ).stdout
