"""From a staging folder to an artifact: the order in which files appear, so that whatever stops us, at any moment,
leaves nothing that `goldsmith verify` accepts.

Everything is made whole in a hidden folder of the output folder. Then the old signature goes first, and the new one
comes last. Between them there is no signature, and an artifact without one is never OK.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.image.artifact import MANIFEST
from goldsmith.image.formats import FORMATS
from goldsmith.image.sbom import DOCUMENTS
from goldsmith.image.sums import SIGNATURE, SUMS
from goldsmith.removal import remove_tree

PREFIX = ".building-"
# Removed in this order, written in the opposite one.
_EVIDENCE = (SIGNATURE, SUMS, MANIFEST)
OURS = (*_EVIDENCE, *DOCUMENTS, *(one.file for one in FORMATS.values()))


@contextmanager
def staging(output: Path) -> Iterator[Path]:
    """A new folder in `output` to make an artifact in; what killed builds left there is removed first."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        output = output.resolve()
        for left in output.glob(f"{PREFIX}*"):
            remove_tree(left, output)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=output))
    except OSError as error:
        raise GoldsmithError(f"can't be written: {error.strerror}", where=str(output)) from None
    try:
        yield folder
    finally:
        remove_tree(folder, output)


def publish(folder: Path, output: Path) -> None:
    """Move what was made in the staging folder to `output`, in the place of what a build before left there."""
    try:
        for one in steps(folder, output):
            one()
    except OSError as error:
        raise GoldsmithError(
            f"can't be written: {error.strerror or error}", where=str(output), hint="what is there now is no artifact"
        ) from None


def steps(folder: Path, output: Path) -> list[Callable[[], None]]:
    """`publish` step by step; a test stops after each."""
    body = sorted(path.name for path in folder.iterdir() if path.name not in _EVIDENCE)
    last = [name for name in reversed(_EVIDENCE) if (folder / name).exists()]
    flush = partial(_flush, output)
    return [
        partial(_flush_all, folder),  # a power cut must not leave a name without its content
        *(partial(_remove, output, name) for name in _EVIDENCE),
        flush,
        *(partial(_remove, output, name) for name in OURS if name not in _EVIDENCE),
        *(partial(_move, folder, output, name) for name in body),
        flush,
        *(step for name in last for step in (partial(_move, folder, output, name), flush)),
    ]


def _move(folder: Path, output: Path, name: str) -> None:
    # the target is gone by now: rename(2) between two links of one file does nothing and leaves both
    os.rename(folder / name, output / name)


def _remove(output: Path, name: str) -> None:
    path = output / name
    if path.is_dir() and not path.is_symlink():
        remove_tree(path.resolve(), output.resolve())
    else:
        path.unlink(missing_ok=True)


def _flush_all(folder: Path) -> None:
    for here, _, names in os.walk(folder):
        for path in (*(Path(here) / name for name in names), Path(here)):
            _flush(path)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
