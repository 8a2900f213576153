"""One run at a time: a lock file whose holder is named to whoever comes second."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from goldsmith.errors import GoldsmithError


@contextmanager
def holding(path: Path, what: str) -> Iterator[None]:
    """Hold `path` while the block runs.

    The kernel drops the hold when the process dies, however it dies, so no stale file ever has to be removed
    by hand. what: what is held, in words ("the lab at …"), for the error of whoever comes second.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("a+")
    except OSError as error:
        raise GoldsmithError(
            f"{what} can't be used: {error.strerror}", where=str(path),
            hint="goldsmith writes its state there: choose another folder with GOLDSMITH_STATE",
        ) from None  # fmt: skip
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GoldsmithError(
                f"{what} is in use by {_holder(path)}", where=str(path), hint="wait for it to end, or stop it"
            ) from None
        file.truncate(0)
        started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        # programs that are started while we hold it must not keep it when we are gone: no inheritance
        file.write(json.dumps({"pid": os.getpid(), "command": _command(), "since": started}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _command() -> str:
    try:
        words = Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return "goldsmith"
    return " ".join(Path(word.decode(errors="replace")).name if "/" in word.decode(errors="replace") else
                    word.decode(errors="replace") for word in words[:6])  # fmt: skip


def _holder(path: Path) -> str:
    try:
        held = json.loads(path.read_text())
        return f"process {held['pid']} ({held['command']}) since {held['since']}"
    except (OSError, ValueError, KeyError):
        return "another run"
