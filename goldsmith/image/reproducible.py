"""The same bits twice: an image is built once more from nothing but its lock and the pool, elsewhere, and compared.

Nothing that an earlier build kept is taken: no base system, no layer. What differs is named: files of the tree, with
what about them, or the format whose bytes do though the tree is the same.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, cast

from goldsmith import host, process
from goldsmith.errors import GoldsmithError
from goldsmith.holding import holding
from goldsmith.image.artifact import Artifact
from goldsmith.image.build import build_key, make
from goldsmith.image.formats import FORMATS
from goldsmith.model.image import read_image
from goldsmith.model.lock import read_lock
from goldsmith.progress import console
from goldsmith.project import state_dir
from goldsmith.removal import remove_tree

_CHUNK = 1 << 20
DIFFOSCOPE_SECONDS = 1800.0
# Where diffoscope's report goes, below the state directory's build/.
REPORT = "{image}.diffoscope.txt"


@dataclass(frozen=True)
class Entry:
    """One entry of a tar. sha256: of a file's content. Everything else as tar has it."""

    kind: str
    mode: str
    owner: str
    size: int
    mtime: int
    link: str
    device: str
    xattrs: str
    sha256: str


def build_again(project: Path, first: Artifact) -> list[str]:
    """Build the image of `first` once more, and say how it differs, one sentence each; none where it is the same.

    Both lie on disk at once. The second is removed in the end. Raises GoldsmithError.
    """
    state = state_dir(project)
    folder = project / "images" / first.image
    image, lock = read_image(folder), read_lock(folder)
    sources = build_key(project, image, lock)
    if sources != first.key:
        raise GoldsmithError("its lock, roles or goldsmith itself changed since", where=str(first.folder))
    formats = ("rootfs", *(name for name in FORMATS if name in first.formats and name != "rootfs"))
    with holding(state / "build" / f"{first.image}.lock", f"the build of images/{first.image}"):
        console.print(f"Building {first.image} once more, from the beginning, to compare")
        parent = state / "build" / first.image
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".again-", dir=parent))
        try:
            (scratch / "layers").mkdir()
            second = make(project, image, lock, scratch / "layers", scratch / "output", formats, None, sources)
            return list(differences(first, second, state / "build" / REPORT.format(image=first.image)))
        finally:
            remove_tree(scratch, state)


def differences(first: Artifact, second: Artifact, report: Path) -> Iterator[str]:
    """How two artifacts differ, one sentence each. report: where diffoscope writes, if this machine has it."""
    if first.tree_sha256 != second.tree_sha256:
        if "rootfs" not in first.formats:
            yield "the trees differ; build it with --format rootfs as well to learn which files"
            return
        yield from _of_trees(first.rootfs, second.rootfs)
        yield from _diffoscope(first.rootfs, second.rootfs, report)
    for name, one in first.formats.items():
        if first.tree_sha256 == second.tree_sha256 and one.sha256 != second.formats[name].sha256:
            yield f"{one.file}: other bytes of the same tree, {_written_by(first, second)}"
    ignored = ("formats", "tools", "tree")
    for field in first.manifest:
        if field not in ignored and first.manifest[field] != second.manifest[field]:
            yield f"manifest.json: {field} differs"


def _written_by(first: Artifact, second: Artifact) -> str:
    tools, others = first.manifest["tools"], second.manifest["tools"]
    changed = [f"{name} {tools.get(name)} and {others[name]}" for name in others if tools.get(name) != others[name]]
    return f"written by {', '.join(changed)}" if changed else "by the same tools"


def _of_trees(first: Path, second: Path) -> Iterator[str]:
    before, after = entries(first), entries(second)
    for path in sorted(before.keys() | after.keys()):
        if path not in after or path not in before:
            yield f"{path}: only in the {'first' if path in before else 'second'} build"
        elif before[path] != after[path]:
            one, other = before[path], after[path]
            what = [
                f"{name} {getattr(one, name)} and {getattr(other, name)}" if name != "sha256" else "content"
                for name in one.__dataclass_fields__
                if getattr(one, name) != getattr(other, name)
            ]
            yield f"{path}: {', '.join(what)}"


def entries(archive: Path) -> dict[str, Entry]:
    """What a tar.zst holds, by path. Raises GoldsmithError if it can't be read."""
    with subprocess.Popen(["zstd", "-d", "-q", "-c", str(archive)], stdout=subprocess.PIPE) as unpacking:
        try:
            with tarfile.open(fileobj=cast(IO[bytes], unpacking.stdout), mode="r|") as tar:
                return {one.name: _entry(tar, one) for one in tar}
        except (tarfile.TarError, OSError) as error:
            raise GoldsmithError(f"can't be read: {error}", where=str(archive)) from None
        finally:
            unpacking.kill()


def _entry(tar: tarfile.TarFile, one: tarfile.TarInfo) -> Entry:
    digest = sha256()
    if one.isreg() and (content := tar.extractfile(one)):
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
    extra = {name: value for name, value in one.pax_headers.items() if name.startswith("SCHILY.")}
    return Entry(
        one.type.decode(), f"{one.mode:04o}", f"{one.uid}:{one.gid}", one.size, int(one.mtime), one.linkname,
        f"{one.devmajor}:{one.devminor}", repr(sorted(extra.items())), digest.hexdigest(),
    )  # fmt: skip


def _diffoscope(first: Path, second: Path, report: Path) -> Iterator[str]:
    if host.find_tool("diffoscope") is None:
        return
    argv: list[str | Path] = ["diffoscope", "--no-progress", "--text", report, first, second]
    done = process.run(argv, timeout=DIFFOSCOPE_SECONDS, what="diffoscope", check=False)
    if done.code in (0, 1):
        yield f"what diffoscope says of it: {report}"
    else:
        yield f"diffoscope failed: {done.tail}"
