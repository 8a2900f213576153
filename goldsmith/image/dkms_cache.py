"""Built kernel modules, kept by what they were built from: the next build of the same takes seconds.

An entry is a folder named by its key, with the files as DKMS keeps them below /var/lib/dkms/MODULE/VERSION/KERNEL, and
entry.json with their digests. It is written beside its place and renamed; what isn't as it was written isn't taken.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath

from goldsmith.errors import GoldsmithError
from goldsmith.removal import remove_tree

# Counted up when an entry is written otherwise.
SCHEMA = 1
# An entry that no build asked for in this time goes.
KEPT_SECONDS = 90 * 86400
_DESCRIPTION = "entry.json"


@dataclass(frozen=True)
class BuiltFile:
    """A file that a build left, and its mode."""

    content: bytes
    mode: int


@dataclass(frozen=True)
class Damaged:
    """Why an entry can't be taken."""

    why: str


class ModuleCache:
    """The entries below `root`, which is below the state directory `state`."""

    def __init__(self, root: Path, state: Path) -> None:
        self.root, self.state = root, state

    def load(self, key: str) -> Mapping[str, BuiltFile] | Damaged | None:
        """The entry's files by their paths; None if there is none, or why it isn't what was written."""
        folder = self.root / key
        if not folder.is_dir():
            return None
        try:
            told = json.loads((folder / _DESCRIPTION).read_bytes())
            if told["schema"] != SCHEMA or told["key"] != key:
                return Damaged("it is another entry")
            found = {}
            for name, one in told["files"].items():
                if not _plain(name):
                    return Damaged(f"{name!r} isn't a file's name")
                content = (folder / "files" / name).read_bytes()
                if sha256(content).hexdigest() != one["sha256"]:
                    return Damaged(f"{name} was changed")
                found[name] = BuiltFile(content, int(one["mode"], 8))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            return Damaged(f"{type(error).__name__}: {error}"[:200])
        if not found:
            return Damaged("it has no files")
        os.utime(folder)  # used now
        return found

    def store(self, key: str, about: Mapping[str, str], files: Mapping[str, BuiltFile]) -> None:
        """Keep a build's files; an entry that is there is replaced. about: for people who look into it."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            making = Path(tempfile.mkdtemp(prefix=".making-", dir=self.root))
            try:
                for name, one in files.items():
                    path = making / "files" / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(one.content)
                told = {name: {"sha256": sha256(one.content).hexdigest(), "mode": f"{one.mode:04o}"}
                        for name, one in files.items()}  # fmt: skip
                text = json.dumps({"schema": SCHEMA, "key": key, **about, "files": told}, indent=1, sort_keys=True)
                (making / _DESCRIPTION).write_text(text + "\n")
                self.drop(key)
                try:
                    making.rename(self.root / key)
                except OSError as error:
                    # another image's build has stored the same in between
                    if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                        raise
            finally:
                shutil.rmtree(making, ignore_errors=True)
        except OSError as error:
            raise GoldsmithError(f"a built module can't be kept: {error.strerror}", where=str(self.root)) from None
        self._tidy()

    def drop(self, key: str) -> None:
        """Remove an entry, if there is one."""
        if (self.root / key).exists():
            remove_tree(self.root / key, self.state)

    def _tidy(self) -> None:
        """Entries that nobody asks for any more go, and what a killed run left."""
        for path in self.root.iterdir():
            patience = 86400 if path.name.startswith(".") else KEPT_SECONDS
            try:
                old = path.stat().st_mtime < time.time() - patience
            except FileNotFoundError:  # another build's
                continue
            if old:
                remove_tree(path, self.state)


def _plain(name: str) -> bool:
    """Whether it is a path that stays below where it is put."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name
