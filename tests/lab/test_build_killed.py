"""A build is killed outright, as by a power cut: nothing of it is taken for an artifact, nothing is left running or
mounted, and the next build works.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from goldsmith.project import state_dir

from .conftest import GOLDSMITH, PROJECT, Lab

STATE = state_dir(PROJECT)
SIGNERS = ["--allowed-signers", str(STATE / "signing/allowed_signers")]
# The steps in the middle of which it is killed; mmdebstrap's mounts were seen by the whole machine, and stayed.
STEPS = ["build the base system", "install the packages", "converge lab", "pack the tree", "make disk.raw"]


@pytest.fixture
def output() -> Iterator[Path]:
    folder = STATE / "tests/killed"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def project(lab: Lab) -> Iterator[Path]:
    """A state directory of its own with links to the pool's files and the tools tree, and no layer of the image."""
    folder = STATE / "tests/killed-state"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "build").mkdir(parents=True)
    for name in ("pool", "pool-key", "pool-db", "pool-published", "signing", "build/tools"):
        if (STATE / name).exists():
            subprocess.run(["cp", "-a", "--link", STATE / name, folder / name], check=True, timeout=120)
    yield folder
    subprocess.run(["rm", "-rf", "--one-file-system", "--", folder], check=True, timeout=300)


def build(state: Path, output: Path, *formats: str) -> subprocess.Popen[bytes]:
    words = ["build", "images/lab", "--format", ",".join(formats), "--output", str(output), "--sign", "lab"]
    environment = {**os.environ, "GOLDSMITH_STATE": str(state), "PYTHONUNBUFFERED": "1"}
    log = (state / "log").open("wb")
    return subprocess.Popen([*GOLDSMITH, *words], cwd=PROJECT, env=environment, stdout=log, stderr=log)


def test_killed_at_any_step(lab: Lab, project: Path, output: Path) -> None:
    for step in STEPS:
        running = build(project, output, "rootfs", "disk")
        wait_for(project / "log", f"… {step}", running)
        time.sleep(1.5)  # in the middle of it
        running.kill()
        running.wait()
        assert wait_until_gone(project, output) == [], step
        assert str(project) not in Path("/proc/self/mountinfo").read_text(), step
        done = lab.goldsmith("verify", str(output), *SIGNERS, expect=None)
        assert done.returncode in (2, 3, 4), step
    done_ = build(project, output, "rootfs")
    assert done_.wait(timeout=600) == 0, (project / "log").read_text()
    lab.goldsmith("verify", str(output), *SIGNERS)
    assert not list((project / "build/lab").glob(".*")) and not list(output.glob(".*"))


def wait_for(log: Path, text: str, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 600
    while text not in log.read_text(errors="replace"):
        assert running.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def wait_until_gone(*places: Path) -> list[str]:
    """Command lines that still name one of these after a while; those of nobody's child who reads from us end by it."""
    deadline = time.monotonic() + 10
    while (left := naming(*places)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def naming(*places: Path) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if any(str(place) in words for place in places) and int(folder.name) != os.getpid():
            found.append(words)
    return found
