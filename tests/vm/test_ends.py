"""`goldsmith boot` as a process: however it ends, no machine is left running, and what it couldn't do it says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from goldsmith import host
from goldsmith.project import state_dir
from goldsmith.vm.folder import private
from goldsmith.vm.machine import QEMU, TOOLS
from tests.vm.conftest import PROJECT

NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
PATIENCE = 600.0  # for verifying an artifact of gigabytes on a loaded machine, and starting QEMU


def start(artifact: Path, state: Path, *options: str, before: list[str] | None = None) -> subprocess.Popen[str]:
    """`goldsmith boot` with a state folder of its own, by which its machine is told from others'."""
    host.require_tools(TOOLS)
    signers = state / "allowed_signers"
    signers.write_text((state_dir(PROJECT) / "signing/allowed_signers").read_text())
    words = [
        *(before or []),
        sys.executable,
        "-m",
        "goldsmith",
        "boot",
        str(artifact),
        "--allowed-signers",
        str(signers),
    ]
    return subprocess.Popen(
        [*words, *options], cwd=PROJECT, env={**os.environ, "GOLDSMITH_STATE": str(state)}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def machines(state: Path) -> list[int]:
    """QEMU's processes with a file below this state folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if QEMU in line and str(state) in line:
                found.append(int(entry.name))
    return found


def wait(what: str, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def folders(state: Path) -> list[Path]:
    return sorted((state / "vm").glob("boot-*"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_boot_that_is_ended(artifact: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    with start(artifact, tmp_path) as process:
        try:
            # a guest that executes something: not KVM's trial, which may end by itself
            wait("no guest", lambda: any(one.stat().st_size for one in tmp_path.glob("vm/*/*/console.log")))
            assert machines(tmp_path)
            process.send_signal(number)
            said = process.communicate(timeout=120)[0]
        finally:
            process.kill()
    assert process.returncode == code, said
    wait("QEMU still runs", lambda: not machines(tmp_path), 30)
    if number == signal.SIGKILL:
        assert len(folders(tmp_path)) == 1
        os.utime(folders(tmp_path)[0], (1, 1))  # a young one may be another boot's that begins
        with private(tmp_path):
            assert len(folders(tmp_path)) == 1
    assert folders(tmp_path) == []


def test_a_boot_that_takes_too_long_and_needs_no_root(artifact: Path, tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    asked = subprocess.run(
        [*NOBODY, sys.executable, "-c", "import goldsmith.cli"], cwd=PROJECT, check=False, timeout=60
    )
    user = NOBODY if asked.returncode == 0 else None  # this Python may be root's alone
    with start(artifact, tmp_path, "--timeout", "2", before=user) as process:
        try:
            said = process.communicate(timeout=PATIENCE)[0]
        finally:
            process.kill()
    assert process.returncode == 4, said
    assert "it showed no ssh host keys on its console within" in said
    assert "The end of its console:" in said
    assert "--timeout SECONDS" in said
    assert not machines(tmp_path)
    assert folders(tmp_path) == []
