"""Writing files whole or not at all: to a temporary file beside the target, flushed, then renamed.

Ctrl-C or a full disk leaves the old file, never half a new one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from goldsmith.errors import GoldsmithError


def write(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Replace `path` by `content` with `mode`; the folder is made. Raises GoldsmithError, e.g. on a full disk."""
    with replacing(path, mode=mode) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it if the block ends well and removed otherwise."""
    if path.exists() and not path.is_file():
        # renaming over /dev/null would replace the device by a file, for everybody
        raise GoldsmithError("is no regular file, so it isn't replaced", where=str(path), hint="name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise GoldsmithError(f"can't be written: {error.strerror}", where=str(path)) from None
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError as error:
        raise GoldsmithError(f"can't be written: {error.strerror or error}", where=str(path)) from None
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
