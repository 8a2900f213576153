"""SHA256SUMS: every file of an artifact with its digest, as sha256sum -c reads it. What a signature signs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.image.pack import file_digest

SUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)")


@dataclass(frozen=True)
class Fault:
    """A file that isn't as SHA256SUMS says. what: `changed`, `missing`, or `not in SHA256SUMS`."""

    path: str
    what: str


def files(folder: Path) -> Iterator[str]:
    """Every path below `folder` that isn't a folder, relative, sorted; without the sums and their signature.

    Links too, and hidden files: whatever is there must be accounted for.
    """
    found = []
    for here, folders, names in os.walk(folder, onerror=_unread):
        links = [name for name in folders if (Path(here) / name).is_symlink()]
        empty = [] if names or folders or Path(here) == folder else [""]
        found += [(Path(here) / name).relative_to(folder).as_posix() for name in [*names, *links, *empty]]
    yield from sorted(set(found) - {SUMS, SIGNATURE})


def text(folder: Path) -> str:
    """The content of SHA256SUMS for what is in `folder`; files of one inode are read once."""
    known: dict[tuple[int, int], str] = {}
    return "".join(f"{_digest(folder / path, known)}  {path}\n" for path in files(folder))


def parse(content: bytes, where: str) -> dict[str, str]:
    """Path → sha256. Raises GoldsmithError where it isn't such a file, or a path leads out of the folder."""
    sums = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if not match or match[2].startswith("/") or {"", ".", ".."} & set(match[2].split("/")):
            raise GoldsmithError(
                "not a line of sha256sum for a path in this folder", where=f"{where}:{number}", hint="build it again"
            )
        sums[match[2]] = match[1]
    return sums


def faults(folder: Path, sums: Mapping[str, str]) -> list[Fault]:
    """What in `folder` isn't as the sums say, by path. Every file is read whole."""
    known: dict[tuple[int, int], str] = {}
    there = set(files(folder))
    found = [Fault(path, "missing") for path in sums.keys() - there]
    found += [Fault(path, f"not in {SUMS}") for path in there - sums.keys()]
    for path in there & sums.keys():
        if (folder / path).is_symlink() or not (folder / path).is_file():
            found.append(Fault(path, "no plain file"))
        elif _digest(folder / path, known) != sums[path]:
            found.append(Fault(path, "changed"))
    return sorted(found, key=lambda one: one.path)


def _unread(error: OSError) -> None:
    # os.walk would go on as if the folder were empty, and what is hidden in it weren't there
    raise GoldsmithError(f"can't be read: {error.strerror}", where=str(error.filename))


def _digest(path: Path, known: dict[tuple[int, int], str]) -> str:
    try:
        status = path.stat()
        inode = (status.st_dev, status.st_ino)
        if inode not in known:
            known[inode] = file_digest(path)
        return known[inode]
    except OSError as error:
        raise GoldsmithError(f"can't be read: {error.strerror}", where=str(path)) from None
