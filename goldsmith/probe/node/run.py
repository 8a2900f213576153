"""`run`: what a part of the probe uses of its node. Shipped to nodes: Python 3.8, standard library only."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import signal
import subprocess
import time
from typing import Any, NamedTuple, Sequence

TEXT_LIMIT = 16 * 1024 * 1024


class Result(NamedTuple):
    """What a command did. code: 127 if there is no such program, 126 if it can't be run, 124 if it was killed
    at its timeout (out and err are then empty)."""

    code: int
    out: str
    err: str


class Run:
    """Call it to run a command: `run(["dpkg", "--print-architecture"]).out`.

    root: prefix of every path, so that a test lays down a fake /proc and /sys. want: what the whole probe is
    asked. variables: those of the role whose probe this is. deep: slow questions are wanted too.
    target: "live", or "image" for a tree that isn't running. container: the kernel is somebody else's.
    """

    def __init__(
        self,
        root: str = "/",
        want: dict[str, Any] | None = None,
        variables: dict[str, Any] | None = None,
        container: bool = False,
    ) -> None:
        self.root = root.rstrip("/")
        self.want: dict[str, Any] = want or {}
        self.variables: dict[str, Any] = variables or {}
        self.container = container
        self.deep = bool(self.want.get("deep"))
        self.target = str(self.want.get("target") or "live")
        self.is_root = os.geteuid() == 0
        # how many times longer than on a real machine everything may take: a machine under emulation
        self.patience = float(self.want.get("patience") or 1)

    def __call__(self, cmd: Sequence[str], timeout: float = 3) -> Result:
        """Run a program, stdin empty, its process group killed after `timeout` seconds. Never raises."""
        timeout *= self.patience
        try:
            # a group of its own, in the part's session: the runtime finds and kills it by the session
            process = subprocess.Popen(
                list(cmd),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=os.setpgrp,
            )
        except FileNotFoundError:
            return Result(127, "", f"{cmd[0]}: not installed")
        except OSError as error:
            return Result(126, "", f"{cmd[0]}: {error.strerror}")
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            # not waited for: in uninterruptible sleep (a dead GPU, a dead NFS server) it never comes back
            for _ in range(20):
                if process.poll() is not None:
                    break
                time.sleep(0.005)
            return Result(124, "", f"{cmd[0]}: no answer within {timeout:g} s")
        return Result(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def path(self, path: str) -> str:
        """Where a path of the node is, below the root."""
        return self.root + path

    def inside(self, path: str) -> str:
        """The reverse of `path`."""
        return path[len(self.root) :] if self.root and path.startswith(self.root + "/") else path

    def real(self, path: str) -> str:
        """The path with its links followed, as the node names it."""
        root = os.path.realpath(self.root) if self.root else ""
        real = os.path.realpath(self.path(path))
        return real[len(root) :] if root and real.startswith(root + "/") else real

    def exists(self, path: str) -> bool:
        return os.path.exists(self.path(path))

    def glob(self, pattern: str) -> list[str]:
        """The paths that match, sorted, as the node names them."""
        return sorted(self.inside(path) for path in glob.glob(glob.escape(self.root) + pattern))

    def read(self, path: str, limit: int = TEXT_LIMIT) -> str | None:
        """The file as text, at most `limit` bytes; None if there is none or it has nothing to say (sysfs).

        Raises PermissionError: what can't be read is unknown, which isn't the same as absent.
        """
        try:
            text = b""
            with open(self.path(path), "rb", buffering=0) as file:
                # by pieces: /proc/sys refuses (ENOMEM) to be read into a buffer of 4 MiB or more
                while len(text) < limit:
                    piece = file.read(min(limit - len(text), 1 << 16))
                    if not piece:
                        break
                    text += piece
            return text.decode("utf-8", "replace")
        except PermissionError:
            raise
        except OSError:
            return None

    def sha256(self, path: str) -> str:
        """The file's sha256 in hex. Raises OSError."""
        return hash_file(self.path(path))

    @staticmethod
    def iso(seconds: float) -> str:
        """A time of the epoch as ISO 8601 in UTC, to the second."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def hash_file(path: str) -> str:
    """sha256 of a regular file, links not followed; a fifo doesn't block. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(1 << 20))
    with open(descriptor, "rb", buffering=0) as file:
        while True:
            count = file.readinto(buffer)
            if not count:
                return digest.hexdigest()
            digest.update(buffer[:count])
