"""Files inside a root file system that isn't running, written so that no link in it leads out of it.

A tree is foreign ground: an image or a node can hold `/etc -> /home` or `/etc/hostname -> /etc/shadow`, and a
plain open() by the builder follows both onto the build host. Here every folder on the way is opened by its
own name in its parent (openat, O_NOFOLLOW), and the last component is never followed.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from goldsmith.errors import GoldsmithError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Each level of a walk holds a folder open; no system is this deep, and a tree that is must not use up our descriptors.
_DEEPEST = 200


class Entry(NamedTuple):
    """What a walk finds. stat: lstat. link: a symbolic link's target. capabilities: of an executable file, as the
    file system has them; empty for all others."""

    path: str
    stat: os.stat_result
    link: str = ""
    capabilities: bytes = b""


class Tree:
    """A root file system at `root`. Paths are absolute inside it ("/etc/hostname"). A context manager."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def write(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Replace the file, whole or not at all, owned by root; folders that are missing are made.

        A link that stands at `path` is replaced, not followed.
        """
        with self._parent(path, make=True) as (folder, name):
            temporary = f".{name}.{secrets.token_hex(4)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(temporary, flags, 0o600, dir_fd=folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content.encode() if isinstance(content, str) else content)
                    os.fchmod(file.fileno(), mode)
                os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(temporary, dir_fd=folder)
                raise

    def link(self, path: str, target: str) -> None:
        """A symbolic link at `path`; what stands there is replaced unless it is a folder."""
        with self._parent(path, make=True) as (folder, name):
            self._unlink(folder, name)
            os.symlink(target, name, dir_fd=folder)

    def folder(self, path: str, mode: int = 0o755) -> None:
        """A folder at `path` with this mode, made if it is missing."""
        with self._parent(path, make=True) as (parent, name):
            handle = self._enter(parent, name, path, make=True)
            os.fchmod(handle, mode)
            os.close(handle)

    def read(self, path: str, limit: int = 64 << 20) -> bytes | None:
        """The content of a plain file, at most `limit` bytes; None if there is none at this very path."""
        try:
            with self._parent(path) as (folder, name):
                # O_NONBLOCK: a fifo in the place of a file would hang us
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
                    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        return None
                    return file.read(limit)
        except OSError:
            return None

    def stat(self, path: str) -> os.stat_result | None:
        """lstat of `path`, or None."""
        try:
            with self._parent(path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return None

    def names(self, path: str) -> list[str]:
        """What a folder holds, sorted; nothing where there is no such folder."""
        try:
            with self._parent(path) as (parent, name):
                handle = self._enter(parent, name, path)
                try:
                    return sorted(os.listdir(handle))
                finally:
                    os.close(handle)
        except OSError:
            return []

    def walk(self) -> Iterator[Entry]:
        """Everything in the tree but its root, by name, a folder before what is in it. No link is followed; of a
        mount only the folder that it is on is told."""
        yield from self._walk(self._root, "", os.fstat(self._root).st_dev, 0)

    def _walk(self, folder: int, above: str, device: int, depth: int) -> Iterator[Entry]:
        if depth > _DEEPEST:
            raise GoldsmithError(
                f"folders lie more than {_DEEPEST} deep in each other", where=f"{self.root}, {above[:200]}…",
                hint="the tree isn't what a build makes: remove it and build again",
            )  # fmt: skip
        with os.scandir(folder) as found:
            names = sorted(found, key=lambda one: one.name)
        for one in names:
            path, status = f"{above}/{one.name}", one.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                yield Entry(path, status, os.readlink(one.name, dir_fd=folder))
            elif stat.S_ISREG(status.st_mode):
                yield Entry(path, status, "", _capabilities(folder, one.name) if status.st_mode & 0o111 else b"")
            else:
                yield Entry(path, status)
            if stat.S_ISDIR(status.st_mode) and status.st_dev == device:
                inner = os.open(one.name, _FOLDER, dir_fd=folder)
                try:
                    yield from self._walk(inner, path, device, depth + 1)
                finally:
                    os.close(inner)

    def remove(self, path: str) -> bool:
        """Remove a file or a link; False if there is none. A folder stays."""
        try:
            with self._parent(path) as (folder, name):
                return self._unlink(folder, name)
        except FileNotFoundError:
            return False

    def remove_folder(self, path: str) -> None:
        """Remove a folder with all that is in it, if there is one."""
        self.empty(path)
        try:
            with self._parent(path) as (folder, name):
                os.rmdir(name, dir_fd=folder)
        except FileNotFoundError:
            pass

    def empty(self, path: str, *, keep_folders: bool = False) -> int:
        """Remove everything below the folder `path`, not itself; the number of files removed.

        keep_folders: packages own folders below /var/log and expect them; only files and links go.
        """
        try:
            with self._parent(path) as (parent, name):
                handle = self._enter(parent, name, path)
        except FileNotFoundError:
            return 0
        try:
            return self._empty(handle, os.fstat(handle).st_dev, keep_folders)
        finally:
            os.close(handle)

    def _empty(self, folder: int, device: int, keep_folders: bool) -> int:
        removed = 0
        for name in os.listdir(folder):
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=folder)
                removed += 1
                continue
            inner = os.open(name, _FOLDER, dir_fd=folder)
            try:
                if os.fstat(inner).st_dev != device:
                    raise GoldsmithError("another file system is mounted here", where=f"{self.root}, {name}")
                removed += self._empty(inner, device, keep_folders)
            finally:
                os.close(inner)
            if not keep_folders:
                os.rmdir(name, dir_fd=folder)
        return removed

    @contextmanager
    def _parent(self, path: str, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder that holds the last component, and that component."""
        parts = [part for part in path.split("/") if part]
        if not path.startswith("/") or not parts or ".." in parts or "." in parts:
            raise GoldsmithError(f"not an absolute, plain path: {path!r}", where=str(self.root))
        handle = os.dup(self._root)
        try:
            for part in parts[:-1]:
                inner = self._enter(handle, part, path, make)
                os.close(handle)
                handle = inner
            yield handle, parts[-1]
        finally:
            os.close(handle)

    def _enter(self, folder: int, name: str, path: str, make: bool = False) -> int:
        if make:
            try:
                os.mkdir(name, 0o755, dir_fd=folder)
            except FileExistsError:
                pass
            else:
                os.chmod(name, 0o755, dir_fd=folder)  # whatever our umask is
        try:
            return os.open(name, _FOLDER, dir_fd=folder)
        except NotADirectoryError:  # what a link answers to O_DIRECTORY | O_NOFOLLOW
            raise GoldsmithError(
                f"{name} on the way is a link or a file, and isn't followed",
                where=f"{self.root}, {path}",
                hint="the tree isn't what a build makes: remove it and build again",
            ) from None

    @staticmethod
    def _unlink(folder: int, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return False
        return True


def _capabilities(folder: int, name: str) -> bytes:
    with suppress(OSError):  # none, or a file system that has none
        # there is no getxattrat(): the descriptor's own name stands for the folder, and the last part isn't followed
        return os.getxattr(f"/proc/self/fd/{folder}/{name}", "security.capability", follow_symlinks=False)
    return b""
