"""The private folder of a boot: overlays, keys and consoles. It goes with the boot, or with the next one."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.holding import holding

_PREFIX = "boot-"
_NEW_SECONDS = 60.0  # until then a folder may be one that isn't held yet


@contextmanager
def private(state: Path) -> Iterator[Path]:
    """An empty folder below the state directory, which only we can read; removed at the end of the block.

    Those of boots that were killed (SIGKILL, a power cut) are removed first. Raises GoldsmithError.
    """
    work = state / "vm"
    try:
        work.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=work))
    except OSError as error:
        # QEMU, its network and ssh need no root, so nothing else here does
        hint = "a boot needs no root, only a folder to write to: GOLDSMITH_STATE=/a/folder/of/yours"
        raise GoldsmithError(f"can't be written: {error.strerror}", where=str(work), hint=hint) from None
    try:
        with holding(folder / "lock", "this boot's folder"):
            _clear(work, folder)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clear(work: Path, ours: Path) -> None:
    for folder in work.glob(f"{_PREFIX}*"):
        with suppress(OSError, GoldsmithError):
            if folder == ours or time.time() - folder.stat().st_mtime < _NEW_SECONDS:
                continue
            with holding(folder / "lock", str(folder)):
                shutil.rmtree(folder, ignore_errors=True)
