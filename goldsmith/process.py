"""Running other programs: always with a deadline, never through a shell, nothing left running.

A timed-out or interrupted child's whole process group is killed (a hung `nvidia-smi` keeps children, too).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from goldsmith.errors import GoldsmithError

# Put before a command: it and all that it starts end with us, even by SIGKILL, and its mounts are its own. setpriv's
# signal comes when the parent has died; all of a process namespace ends with its first process. Without it mmdebstrap's
# mounts were left, and packages went on being installed in a tree whose build had been killed. Needs root.
WITH_US = (
    "setpriv", "--pdeathsig", "KILL", "--",
    "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
)  # fmt: skip


@dataclass(frozen=True)
class Done:
    """What a program did. `err` is stderr, or empty where it was merged into `out`."""

    argv: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def tail(self) -> str:
        """The last lines it said, for an error message."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return "\n  ".join(lines[-8:])


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    what: str,
    check: bool = True,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    hint: str = "",
    on_line: Callable[[str], None] | None = None,
) -> Done:
    """Run a program to its end.

    timeout: seconds. what: the step in words, for the error ("build the base system").
    check: a non-zero exit raises GoldsmithError, with the last lines that the program printed.
    env: added to the environment (LC_ALL=C.UTF-8 always is). on_line: called with every line of the merged
    output as it comes, for progress; then `err` is empty.
    """
    words = [str(word) for word in argv]
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if on_line else subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},
            cwd=cwd,
            start_new_session=True,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        raise GoldsmithError(
            f"{words[0]} isn't installed", where=what, hint=hint or f"install the package that has {words[0]}"
        ) from None
    except PermissionError as error:
        raise GoldsmithError(f"{words[0]} can't be run: {error}", where=what, hint=hint) from None
    try:
        if on_line:
            out, err = _stream(process, timeout, on_line, stdin), ""
        else:
            out, err = process.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_group(process)
        raise GoldsmithError(
            f"`{words[0]}` didn't end within {timeout:g} s and was killed", where=what, hint=hint
        ) from None
    except BaseException:  # Ctrl-C too: nothing is left running
        kill_group(process)
        raise
    done = Done(tuple(words), process.returncode, out, err)
    if check and done.code != 0:
        raise GoldsmithError(f"`{words[0]}` failed with exit code {done.code}:\n  {done.tail}", where=what, hint=hint)
    return done


def _stream(process: subprocess.Popen[str], timeout: float, on_line: Callable[[str], None], stdin: str | None) -> str:
    """Read line by line; the deadline is kept by an alarm thread that kills the group."""
    import threading

    expired = threading.Event()

    def expire() -> None:
        expired.set()
        kill_group(process)

    alarm = threading.Timer(timeout, expire)
    alarm.daemon = True
    alarm.start()
    lines = []
    try:
        if stdin is not None and process.stdin:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(stdin)
            process.stdin.close()
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            on_line(line.rstrip("\n"))
        process.wait()
    finally:
        alarm.cancel()
    if expired.is_set():
        raise subprocess.TimeoutExpired(process.args, timeout)
    return "".join(lines)


def kill_group(process: subprocess.Popen[str]) -> None:
    """SIGTERM to the group, SIGKILL three seconds later to whoever is still there."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3)
            if number == signal.SIGTERM and not _group_alive(process.pid):
                return


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
