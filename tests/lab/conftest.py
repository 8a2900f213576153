"""A lab of the tests' own, beside a user's: its own name, bridge and addresses; the pool and the image are shared.

Everything goes through the command line, as a user's would. Nothing here runs without root and systemd-nspawn;
then it is skipped, and says why.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
GOLDSMITH = [sys.executable, "-m", "goldsmith"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a lab."""
    here = Path(__file__).parent
    reason = why_not()
    for item in items:
        if here in Path(item.fspath).parents:
            item.add_marker(pytest.mark.lab)
            if reason:
                item.add_marker(pytest.mark.skip(reason=f"no lab: {reason}"))


def why_not() -> str:
    """Why no lab can run here; empty if one can."""
    if os.geteuid() != 0:
        return "not root"
    done = subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        return f"this machine doesn't let root make namespaces: {done.stderr.strip()}"
    return ""


@dataclass(frozen=True)
class Lab:
    """The tests' lab. site: its inventory folder."""

    site: Path

    def goldsmith(self, *words: str, timeout: float = 900, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a command; SITE stands for the site. Its exit code must be `expect`, unless that is None."""
        command = [*GOLDSMITH, *(str(self.site) if word == "SITE" else word for word in words)]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=timeout)
        said = f"$ goldsmith {' '.join(words)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
        print(said)
        if expect is not None:
            assert done.returncode == expect, said
        return done

    def audit(self, *words: str, expect: int | None = 0) -> dict[str, Any]:
        """The audit's JSON."""
        done = self.goldsmith("audit", "SITE", "--format", "json", *words, expect=expect)
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def on(self, node: str, *command: str, stdin: bytes | None = None) -> str:
        """Run a command on a node, as root, over ssh."""
        ssh = ["ssh", "-F", str(self.state / "ssh/config"), node, *command]
        done = subprocess.run(ssh, input=stdin, capture_output=True, timeout=300)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.decode()

    @property
    def state(self) -> Path:
        root = Path(os.environ.get("GOLDSMITH_STATE") or PROJECT / ".goldsmith")
        return root / "labs/gstest"


def lab_site(folder: Path, *, name: str, bridge: str, network: str, nodes: str = "node[01:04]") -> Path:
    """inventories/lab, copied to `folder`, with another lab's name and network."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(PROJECT / "inventories/lab", folder)
    variables = (folder / "group_vars/all.yml").read_text()
    ups = "/.." * (len(folder.relative_to(PROJECT).parts))
    for old, new in (
        ("10.213.7.", network),
        ("name: lab\n", f"name: {name}\n"),
        ("goldsmith0", bridge),
        ("/../../.goldsmith", f"{ups}/.goldsmith"),
    ):
        assert old in variables, old
        variables = variables.replace(old, new)
    (folder / "group_vars/all.yml").write_text(variables)
    hosts = (folder / "hosts.yml").read_text()
    assert "node[01:04]" in hosts
    (folder / "hosts.yml").write_text(hosts.replace("node[01:04]", nodes))
    return folder


def copy_of_project(folder: Path) -> Path:
    """This checkout as it is now, copied to `folder`, with the lab's lock if there is one."""
    shutil.rmtree(folder, ignore_errors=True)
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT, check=True, capture_output=True, text=True, timeout=60,
    ).stdout.split("\0")  # fmt: skip
    # a lock that another one is made from, so that only what was added is resolved
    for name in [*filter(None, files), "images/lab/image.lock"]:
        if (PROJECT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def site() -> Iterator[Path]:
    """The tests' own site."""
    folder = PROJECT / ".goldsmith/tests/gstest"
    yield lab_site(folder, name="gstest", bridge="goldsmith-t0", network="10.213.9.")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def lab(site: Path) -> Iterator[Lab]:
    """Four nodes, as `make lab` leaves them. What a broken run left is removed first, and all of it at the end."""
    lab = Lab(site)
    lab.goldsmith("lab", "down", "--remove", "--site", "SITE")
    try:
        done = lab.goldsmith("lab", "up", "--site", "SITE", timeout=1800)
        assert "4 nodes, 0 changes" in done.stdout + done.stderr, "the image isn't what a deploy would make"
        yield lab
    finally:
        lab.goldsmith("lab", "down", "--remove", "--site", "SITE", expect=None)
