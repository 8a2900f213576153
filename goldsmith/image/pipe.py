"""Two programs, one pipe between them, with a deadline, nothing left running: how one format is made of another."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from goldsmith.errors import GoldsmithError


def pipe(
    source: Sequence[str | Path],
    sink: Sequence[str | Path],
    *,
    timeout: float,
    what: str,
    env: Mapping[str, str] | None = None,
    hint: str = "",
) -> None:
    """Run both to their end, the first one's output into the second. env: added to the environment of both.

    Raises GoldsmithError, with the last lines of the one that failed; when both did, of the second: the first
    then only lost its reader.
    """
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryFile("w+") as told_first, tempfile.TemporaryFile("w+") as told_second:
        first = _open(source, subprocess.DEVNULL, subprocess.PIPE, told_first, env, what)
        try:
            second = _open(sink, first.stdout, told_second, told_second, env, what)
            try:
                assert first.stdout is not None
                first.stdout.close()  # ours: otherwise the first never learns that the second is gone
                for child, told in ((second, told_second), (first, told_first)):
                    _finish(child, told, deadline, timeout, what, hint)
            finally:
                _kill(second)
        finally:
            _kill(first)


def _open(
    argv: Sequence[str | Path],
    stdin: int | IO[bytes] | None,
    stdout: int | IO[str],
    stderr: IO[str],
    env: Mapping[str, str] | None,
    what: str,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [str(word) for word in argv],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC", **(env or {})},
            start_new_session=True,
        )
    except FileNotFoundError:
        raise GoldsmithError(
            f"{argv[0]} isn't installed", where=what, hint=f"install the package that has {argv[0]}"
        ) from None


def _finish(
    child: subprocess.Popen[bytes], told: IO[str], deadline: float, timeout: float, what: str, hint: str
) -> None:
    name = str(child.args[0]) if isinstance(child.args, list) else "?"
    try:
        code = child.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise GoldsmithError(f"`{name}` didn't end within {timeout:g} s and was killed", where=what) from None
    if code != 0:
        told.seek(0)
        tail = "\n  ".join(told.read().strip().splitlines()[-8:])
        raise GoldsmithError(f"`{name}` failed with exit code {code}:\n  {tail}", where=what, hint=hint)


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if child.stdout:
        child.stdout.close()
