"""A tree as one file: a tar that comes out the same from the same tree, compressed with zstd, hashed on the
way.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, cast

from goldsmith import process
from goldsmith.errors import GoldsmithError

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Packed:
    """size, sha256: of the compressed file. tree_sha256: of the tar in it, whatever compressed it. tree_size:
    bytes.
    """

    size: int
    sha256: str
    tree_size: int
    tree_sha256: str


def tar_command(tree: Path, newest: int) -> list[str]:
    """newest: seconds since 1970; younger files get this time, as their own is only that of the build."""
    return [
        "tar", "--create", f"--directory={tree}", "--one-file-system", "--sort=name", "--numeric-owner",
        "--format=posix", "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
        "--xattrs", "--xattrs-include=*", "--acls", f"--mtime=@{newest}", "--clamp-mtime", ".",
    ]  # fmt: skip


def pack(tree: Path, target: Path, newest: int, say: Callable[[str], None]) -> Packed:
    """Write the tree into `target`, a tar.zst. Nothing is left running, whatever interrupts it.

    Raises GoldsmithError, with what tar or zstd said.
    """
    plain, packed, size = sha256(), sha256(), 0
    with target.open("wb") as file:
        tar = _open(tar_command(tree, newest), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            # -T0: as many threads as there are cores; the frame is the same for any number of them
            zstd = _open(["zstd", "-q", "-T0", "-3"], stdin=subprocess.PIPE, stdout=file)
            try:
                source, sink = cast(IO[bytes], tar.stdout), cast(IO[bytes], zstd.stdin)
                while chunk := source.read(_CHUNK):
                    plain.update(chunk)
                    sink.write(chunk)
                    size += len(chunk)
                    if size % (64 * _CHUNK) < _CHUNK:
                        say(f"{size >> 20} MiB")
                sink.close()
                _finish(tar)
                _finish(zstd)
            except BrokenPipeError:
                _finish(zstd)
                raise GoldsmithError("zstd ended early", where=str(target)) from None
            finally:
                _kill(zstd)
        finally:
            _kill(tar)
    with target.open("rb") as file:
        while chunk := file.read(_CHUNK):
            packed.update(chunk)
        written = file.tell()
    return Packed(written, packed.hexdigest(), size, plain.hexdigest())


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar.zst into the folder `target`, which is made. Owners, xattrs and ACLs are those of the
    archive.
    """
    target.mkdir()
    process.run(
        [
            "tar",
            "--extract",
            f"--file={archive}",
            f"--directory={target}",
            "--use-compress-program=zstd -d -T0",
            "--numeric-owner",
            "--same-owner",
            "--preserve-permissions",
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
        ],
        timeout=1800,
        what=f"unpack {archive.name}",
        hint="is the disk full?",
    )


def file_digest(path: Path) -> str:
    """sha256 of a file, read in pieces."""
    digest = sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _open(argv: list[str], *, stdin: int, stdout: int | IO[bytes]) -> subprocess.Popen[bytes]:
    # what somebody set for their own backups would be in the image: TAR_OPTIONS=--owner=…
    env = {**{name: value for name, value in os.environ.items() if name != "TAR_OPTIONS"}, "LC_ALL": "C.UTF-8"}
    try:
        return subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, start_new_session=True, env=env
        )
    except FileNotFoundError:
        raise GoldsmithError(f"{argv[0]} isn't installed", hint=f"install the package that has {argv[0]}") from None


def _finish(child: subprocess.Popen[bytes]) -> None:
    error = cast(IO[bytes], child.stderr).read().decode(errors="replace").strip()
    if child.wait() != 0:
        name = str(cast(list[str], child.args)[0])
        raise GoldsmithError(f"`{name}` failed with exit code {child.returncode}:\n  {error}", where="pack the tree")


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
        child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe and not pipe.closed:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
