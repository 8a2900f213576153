"""Which artifact was read whole and found right, so that the next build needn't read it again.

A file counts as the one that was read while its inode, size and both times are the same. No program can set a change
time; damage below the file system shows when the artifact is used, which reads it whole.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from goldsmith import atomic
from goldsmith.image import sums


def remember(record: Path, folder: Path) -> None:
    """Note that every file of the artifact in `folder` is right as it is now."""
    atomic.write(record, json.dumps(_state(folder), indent=1) + "\n")


def unchanged(record: Path, folder: Path) -> bool:
    """The artifact in `folder` is still what was remembered last."""
    try:
        return bool(json.loads(record.read_bytes()) == _state(folder))
    except (OSError, ValueError):
        return False


def _state(folder: Path) -> dict[str, Any]:
    stats = {path: (folder / path).lstat() for path in (*sums.files(folder), sums.SUMS)}
    return {
        "folder": str(folder.resolve()),
        "files": {path: [one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns] for path, one in stats.items()},
    }
