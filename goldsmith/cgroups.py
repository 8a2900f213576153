"""Control groups, where this machine's own systemd isn't there to make them: one a node, and none left behind.

Nodes that were started from one group would share one: each node's systemd would see the others' services in
its tree, and wait for them at its shutdown.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def make(machine: str) -> list[Path]:
    """The folders of a new group for `machine`, one a hierarchy that systemd uses; none where systemd
    runs.
    """
    if Path("/run/systemd/system").is_dir():
        return []
    groups = [top / machine for top in hierarchies(Path("/proc/self/mountinfo").read_text())]
    for group in groups:
        group.mkdir(exist_ok=True)
    return groups


def remove(machine: str) -> None:
    """Remove the groups of `machine` with all below them; its processes have ended."""
    for top in hierarchies(Path("/proc/self/mountinfo").read_text()):
        for _ in range(20):
            # folders only, leaves first; their files are the kernel's and go with them
            for folder, _, _ in os.walk(top / machine, topdown=False):
                with suppress(OSError):
                    os.rmdir(folder)
            if not (top / machine).exists():
                break
            time.sleep(0.05)  # the kernel is a moment behind the last process's end


@contextmanager
def in_ours(lock: Path = Path("/run/goldsmith-nspawn.lock")) -> Iterator[None]:
    """Run one `systemd-nspawn --keep-unit` below our own group, which it leaves groups in. They are removed by
    whoever ends last: removed earlier, they are missing to one that is just starting ("Failed to attach … payload")."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _tidy()


def _tidy() -> None:
    """Remove the groups that `systemd-nspawn --keep-unit` makes below our own, and leaves, if they are empty."""
    for path in own(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()):
        for name in ("payload", "supervisor"):
            with suppress(OSError):
                (path / name).rmdir()


def own(cgroup: str, mountinfo: str) -> list[Path]:
    """Our own group in each hierarchy of `hierarchies`, from /proc/self/cgroup's and mountinfo's text."""
    paths = dict(line.split(":", 2)[1:] for line in cgroup.splitlines() if line.count(":") >= 2)
    mine = {path for kind, path in paths.items() if kind in ("", "name=systemd")} or {"/"}
    return [top / path.lstrip("/") for top in hierarchies(mountinfo) for path in sorted(mine)]


def hierarchies(mountinfo: str) -> list[Path]:
    """Mount points of systemd's own hierarchy (cgroup v1) and of cgroup v2, from /proc/self/mountinfo's
    text.
    """
    points = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = [*after.split(), "", "", ""][:3]
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            points.append(Path(before.split()[4]))
    return points
