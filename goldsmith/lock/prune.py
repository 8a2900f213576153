"""`goldsmith pool prune`: the files that no lock needs any more.

Kept is what the project's locks name, what the published indexes list (nodes may be installing from them this
moment), and what locks that were named on the command line need: those that somebody may want to go back to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.lock.index import read_stanzas
from goldsmith.lock.locking import held
from goldsmith.lock.pool import Pool
from goldsmith.lock.wheelhouse import Wheelhouse, wheels_of
from goldsmith.model.lock import Lock, read_lock
from goldsmith.removal import remove_tree


@dataclass(frozen=True)
class Prunable:
    """unused: the folders of files by content, no lock needs them. indexes: published ones of images that the
    project hasn't got; they stay unless they are forgotten. size: bytes of the unused files."""

    unused: tuple[Path, ...]
    indexes: tuple[str, ...]
    size: int


def prunable(project: Path, pool: Pool, keep: Iterable[Lock] = (), forget: Sequence[str] = ()) -> Prunable:
    """What could be removed. forget: images whose published index doesn't count.

    Raises GoldsmithError if a lock or an index of the project can't be read: what it needs isn't known then.
    """
    known = {path.parent.name for path in (project / "images").glob("*/image.yml")}
    locks = [read_lock(path.parent) for path in sorted((project / "images").glob("*/image.lock"))]
    needed = {digest for lock in [*locks, *keep] for digest in _digests(lock)}
    published = {path.name for folder in ("dists", "simple") for path in (pool.root / folder).glob("[!.]*")}
    for name in forget:
        if name not in published:
            raise GoldsmithError(f"no index of an image {name} is published", where=str(pool.root / "dists"))
        if name in known:
            raise GoldsmithError(
                f"image {name} is one of the project's", where=f"images/{name}", hint="remove the image first"
            )
    for name in sorted(published - set(forget)):
        needed |= _listed(pool, name)
    unused = [
        path for folder in ("pool", "wheels") for path in _by_content(pool.root / folder) if path.name not in needed
    ]
    size = sum(file.stat().st_size for path in unused for file in path.iterdir() if file.is_file())
    return Prunable(tuple(unused), tuple(sorted(published - known - set(forget))), size)


def prune(project: Path, pool: Pool, keep: Iterable[Lock] = (), forget: Sequence[str] = ()) -> Prunable:
    """Remove what `prunable` finds, and tell it. Nobody locks or fills meanwhile: what they need may not be named by
    any lock yet."""
    with held(pool):
        found = prunable(project, pool, keep, forget)
        for name in forget:
            for index in (pool.index(name), Wheelhouse(pool.root).index(name)):
                index.withdraw()
        for path in found.unused:
            remove_tree(path, pool.state)
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
    return found


def _digests(lock: Lock) -> Iterable[str]:
    yield from (one.sha256 for one in lock.packages.values())
    yield from (one.sha256 for one in wheels_of(lock.environments))


def _listed(pool: Pool, image: str) -> set[str]:
    """The sha256 of every file that an image's published indexes name. Raises GoldsmithError if one is damaged: an
    index that lost its list would look as if it needed nothing."""
    indexes = [one for one in (pool.index(image), Wheelhouse(pool.root).index(image)) if one.link.is_symlink()]
    if damage := [fault for one in indexes for fault in one.damage()]:
        raise GoldsmithError(
            f"{damage[0]}, so what it needs isn't known", where=str(pool.root),
            hint=f"make it anew (goldsmith pool images/{image}), or --forget {image}; nothing was removed",
        )  # fmt: skip
    found: set[str] = set()
    try:
        for path in (pool.root / "dists" / image).glob("main/binary-*/Packages"):
            found |= {one["SHA256"] for one in read_stanzas(path.read_text())}
        for page in (pool.root / "simple" / image).glob("*/*/index.html"):
            found |= set(re.findall(r"#sha256=([0-9a-f]{64})", page.read_text()))
    except (OSError, KeyError) as error:
        raise GoldsmithError(
            f"the index of {image} can't be read: {error}", where=str(pool.root), hint="nothing was removed"
        ) from None
    return found


def _by_content(folder: Path) -> Iterable[Path]:
    """The folders that are named by a content: AB/SHA256. Anything else isn't ours to remove."""
    for path in sorted(folder.glob("[0-9a-f][0-9a-f]/*")):
        if re.fullmatch(r"[0-9a-f]{64}", path.name) and path.is_dir() and not path.is_symlink():
            yield path
