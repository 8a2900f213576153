"""Removing folders that goldsmith made, and nothing else: inside the state directory, on one file system,
past no link and no mount."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from goldsmith import process
from goldsmith.errors import GoldsmithError


def remove_tree(path: Path, root: Path) -> None:
    """Remove the folder `path` with all below it, if it is there.

    root: the state directory; `path` must lie below it and be reached through no link. A mount at or below
    `path` is refused with its name: what it shows isn't ours.
    """
    if not os.path.lexists(path):
        return
    check_inside(path, root)
    if mounts := mounts_below(path, Path("/proc/self/mountinfo").read_text()):
        raise GoldsmithError(
            "something is mounted here, so it isn't removed", where=str(mounts[0]), hint=f"umount {mounts[0]}"
        )
    # rm holds every folder open by its descriptor and follows no link; Python's rmtree would cross file
    # systems
    process.run(["rm", "-r", "-f", "--one-file-system", "--", path], timeout=600, what=f"remove {path}")


def check_inside(path: Path, root: Path) -> None:
    """Raise unless `path` lies below `root` and every folder from there to it is a real one."""
    if root not in path.parents or ".." in path.parts:
        raise GoldsmithError("isn't inside goldsmith's state directory, so it isn't removed", where=str(path))
    for folder in (path, *path.parents):
        if folder == root:
            return
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise GoldsmithError("is a link or a file where a folder should be, so it isn't removed", where=str(folder))


def mounts_below(path: Path, mountinfo: str) -> list[Path]:
    """Mount points at or below `path`, deepest first, from /proc/self/mountinfo's text."""
    points = [Path(line.split()[4].encode().decode("unicode_escape")) for line in mountinfo.splitlines()]
    return sorted((one for one in points if one == path or path in one.parents), key=lambda p: -len(p.parts))
