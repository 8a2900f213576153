"""An image's index in the pool: a folder that is made whole, then linked to, so that nobody ever reads half of one.

FOLDER/IMAGE                 a link, swapped by a rename
FOLDER/.IMAGE-DIGEST         what it leads to, by the lock's digest; earlier ones go
STATE/pool-published/…       what each file of it was: one that is damaged later is noticed and made anew
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from goldsmith import atomic
from goldsmith.lock.fetch import file_sha256


@dataclass(frozen=True)
class Published:
    """folder: where the indexes of one kind are, e.g. STATE/pool/dists. records: STATE/pool-published, which isn't
    served."""

    folder: Path
    records: Path
    image: str

    @property
    def link(self) -> Path:
        return self.folder / self.image

    def faults(self, digest: str) -> list[str]:
        """What keeps the index from being that of the lock with this digest, as it was made; empty if nothing."""
        if not self.link.is_symlink() or os.readlink(self.link) != self._name(digest):
            return [f"{self.link} isn't this lock's index"]
        return self.damage()

    def damage(self) -> list[str]:
        """How the index that is there differs from what was made, whichever lock it is of."""
        try:
            made = json.loads(self._record.read_text())
        except (OSError, ValueError):
            return [f"{self._record} can't be read, so nobody knows whether the index is whole"]
        have = _files(self.link.resolve())
        names = sorted(name for name in {*made, *have} if made.get(name) != have.get(name))
        return [f"{self.link / name} isn't what was published" for name in names]

    def publish(self, digest: str, make: Callable[[Path], None]) -> None:
        """Swap a new index in. make: fills the folder that it is given. If it fails, the old index stays."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        target = self.folder / self._name(digest)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=self.folder) as making:
            folder = Path(making)
            make(folder)
            folder.chmod(0o755)
            record = json.dumps(_files(folder), indent=1, sort_keys=True)
            shutil.rmtree(target, ignore_errors=True)
            folder.rename(target)
            folder.mkdir()  # for the context manager to remove
        new = self.folder / f".link-{self.image}"
        new.unlink(missing_ok=True)
        new.symlink_to(target.name)
        new.rename(self.link)
        atomic.write(self._record, record)
        self._sweep(target)

    def withdraw(self) -> None:
        """Publish no index of this image any more."""
        self.link.unlink(missing_ok=True)
        self._record.unlink(missing_ok=True)
        if self.folder.is_dir():
            self._sweep(None)

    def _name(self, digest: str) -> str:
        return f".{self.image}-{digest[:16]}"

    @property
    def _record(self) -> Path:
        return self.records / f"{self.folder.name}-{self.image}.json"

    def _sweep(self, present: Path | None) -> None:
        """Remove the image's earlier indexes, and what a killed run was making."""
        ours = re.compile(rf"\.{re.escape(self.image)}-[0-9a-f]{{16}}|\.making-.*")
        for path in self.folder.iterdir():
            if path != present and ours.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)


def _files(folder: Path) -> dict[str, str]:
    """Relative name → sha256, of every file below. What can't be read has an empty one."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() or path.is_symlink():
            try:
                found[path.relative_to(folder).as_posix()] = file_sha256(path)
            except OSError:
                found[path.relative_to(folder).as_posix()] = ""
    return found
