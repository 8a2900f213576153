"""Processes that outlive us, remembered so that a recycled process id is never killed; and finding lost ones."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from goldsmith.errors import GoldsmithError

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process of this boot. start: its start time in clock ticks since the boot, from /proc/PID/stat.

    Pid and start time together are never given twice within a boot; `boot` tells boots apart.
    """

    pid: int
    start: int
    boot: str

    @property
    def alive(self) -> bool:
        stat = _stat(self.pid)
        return stat is not None and stat == self.start and self.boot == boot_id()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this very process, or to nobody."""
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid)
            try:
                # The handle is fixed on whoever has the pid now; only then is it asked who that is.
                if self.alive:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)

    def wait(self, seconds: float) -> bool:
        """Whether it is gone, after waiting for at most `seconds`."""
        deadline = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def parse_stat(text: str) -> tuple[str, int]:
    """State letter and start time of a /proc/PID/stat line; the command in it may hold blanks and
    brackets.
    """
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _stat(pid: int) -> int | None:
    """The start time of a living process; None for a zombie, too: it holds nothing any more."""
    try:
        state, start = parse_stat((_PROC / str(pid) / "stat").read_text())
    except OSError:
        return None
    return None if state in "ZX" else start


def process(pid: int) -> Process | None:
    """The process that has this pid now."""
    start = _stat(pid)
    return None if start is None else Process(pid, start, boot_id())


def spawn(argv: Sequence[str | Path], *, log: Path, cwd: Path, what: str) -> Process:
    """Start a program that goes on when we end: a session of its own, nothing on stdin, output into `log`.

    It inherits no open file but these (so no lock of ours lives on in it). Raises GoldsmithError if it can't
    start.
    """
    with log.open("ab") as output:
        try:
            child = subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                start_new_session=True,
                close_fds=True,
            )
        except OSError as error:
            raise GoldsmithError(f"{argv[0]} can't be started: {error.strerror}", where=what) from None
    _children.append(child)
    start = _stat(child.pid)
    return Process(child.pid, -1 if start is None else start, boot_id())


# Kept so that Python reaps those that end while we run, and doesn't warn about the others.
_children: list[subprocess.Popen[bytes]] = []


def stop(processes: Sequence[Process], *, patience: float) -> None:
    """SIGTERM to all of them, then SIGKILL to those that are there after `patience` seconds."""
    for one in processes:
        one.signal(signal.SIGTERM)
    deadline = time.monotonic() + patience
    for one in processes:
        one.wait(max(0.0, deadline - time.monotonic()))
    kill(processes)


def kill(processes: Sequence[Process]) -> None:
    """SIGKILL to all of them, and wait until they are gone."""
    for one in processes:
        one.signal(signal.SIGKILL)
    for one in processes:
        one.wait(5)
    for child in _children:
        child.poll()


def find(word: str) -> list[Process]:
    """Every process that has `word` among its arguments, exactly: those that no state file knows of."""
    found = []
    for folder in _PROC.iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                one = process(int(folder.name))
                if one:
                    found.append(one)
    return found


def in_overlay(upper: Path) -> list[Process]:
    """Every process that sees an overlay whose writable layer is `upper`: a node's, whoever started it.

    They may have outlived their systemd-nspawn (it was killed), and then nothing else tells whose they are.
    """
    option = f"upperdir={upper}".replace(" ", "\\040").encode()  # as mountinfo writes it
    known: dict[str, bool] = {}
    found = []
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            namespace = os.readlink(folder / "ns/mnt")
            if namespace not in known:
                options = (folder / "mountinfo").read_bytes().replace(b"\n", b",").split(b",")
                known[namespace] = option in options
            if known[namespace] and (one := process(int(folder.name))):
                found.append(one)
    return found


def leader(parent: Process) -> int | None:
    """The host's pid of the container's own PID 1, below a systemd-nspawn process."""
    pending = [parent.pid]
    while pending:
        pid = pending.pop()
        with contextlib.suppress(OSError):
            pending += [int(word) for word in (_PROC / f"{pid}/task/{pid}/children").read_text().split()]
            for line in (_PROC / f"{pid}/status").read_text().splitlines():
                # the pid as each nested namespace sees it: "NSpid: 4711 1"
                if line.startswith("NSpid:") and len(line.split()) == 3 and line.split()[2] == "1":
                    return pid
    return None
