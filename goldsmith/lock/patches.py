"""The patches of an image's DKMS modules: files beside image.yml, whose digests the lock has."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.model.image import Image, read_placed
from goldsmith.model.lock import Lock, LockedPatch
from goldsmith.yamlfile import Places

LARGEST = 1 << 20
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class PatchText:
    """A patch with its content. field: where image.yml names it, for errors."""

    locked: LockedPatch
    text: bytes
    field: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.locked.file.rpartition("/")[2]


def read_patches(image: Image, places: Places) -> list[PatchText]:
    """The image's patches, in its order. places: where its fields stand; a layer's patch lies beside that layer.

    Raises GoldsmithError with the field for one that isn't there, is a link or reached through one, or is no patch.
    """
    found = []
    for number, one in enumerate(image.dkms.patches):
        field = ("dkms", "patches", number, "file")
        where = places.of(*field)
        text = _read(places.file_of(*field).parent, one.file, where)
        if not re.search(rb"^--- .*\n\+\+\+ ", text, re.MULTILINE):
            raise GoldsmithError(f"{one.file} isn't a patch: it has no `---` and `+++` lines", where=where,
                                 hint="diff -u, or git diff, makes one, to be applied by patch -p1")  # fmt: skip
        locked = LockedPatch(module=one.module, file=one.file, sha256=sha256(text).hexdigest())
        found.append(PatchText(locked, text, where))
    names = [(patch.locked.module, patch.name) for patch in found]
    for patch in found:
        if names.count((patch.locked.module, patch.name)) > 1:
            raise GoldsmithError(f"{patch.locked.module} has two patches named {patch.name}", where=patch.field,
                                 hint="rename one: they are put into one folder")  # fmt: skip
    return found


def locked_patches(directory: Path, lock: Lock) -> Sequence[PatchText]:
    """The patches of images/NAME, which are those of its lock. Raises GoldsmithError if they aren't."""
    if not lock.patches and not (directory / "image.yml").is_file():
        return []
    found = read_patches(*read_placed(directory))
    for one in found:
        known = [had.sha256 for had in lock.patches if had.module == one.locked.module and had.file == one.locked.file]
        if one.locked.sha256 not in known:
            what = "was changed since the image was locked" if known else "isn't in the lock"
            raise GoldsmithError(
                f"{one.locked.file} {what}", where=one.field, hint=f"lock it again: goldsmith lock images/{lock.image}"
            )
    if [one.locked for one in found] != lock.patches:
        raise GoldsmithError(
            "the lock has other patches, or in another order", where=str(directory / "image.lock"),
            hint=f"lock it again: goldsmith lock images/{lock.image}",
        )  # fmt: skip
    return found


def _read(folder: Path, name: str, where: str) -> bytes:
    """A plain file below a folder. Every part of its way is opened by its own name: no link leads out."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            *between, last = name.split("/")
            for part in between:
                inner = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=handle)
                os.close(handle)
                handle = inner
            with os.fdopen(os.open(last, _FLAGS, dir_fd=handle), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise GoldsmithError(f"{name} isn't a plain file", where=where)
                text = file.read(LARGEST + 1)
        finally:
            os.close(handle)
    except OSError as error:
        link = os.path.realpath(folder / name) != os.path.join(os.path.realpath(folder), name)
        why = "is a link, or reached through one, and isn't followed" if link else f"can't be read: {error.strerror}"
        raise GoldsmithError(
            f"{folder / name} {why}", where=where, hint="the path is relative to the image.yml that names it"
        ) from None
    if len(text) > LARGEST:
        raise GoldsmithError(f"{name} is larger than {LARGEST >> 20} MiB", where=where, hint="a patch is a small text")
    return text
