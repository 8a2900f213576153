"""Filling the pool: fetching the debs that a lock names and the pool hasn't got, by address and hash."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from goldsmith.errors import GoldsmithError
from goldsmith.lock.apt import Apt
from goldsmith.lock.fetch import Wanted, fetch
from goldsmith.lock.pool import Pool
from goldsmith.lock.sources import Source, sources_of
from goldsmith.model.image import BASE
from goldsmith.model.lock import Lock, LockedPackage
from goldsmith.progress import step


def fill_debs(pool: Pool, lock: Lock, *, verify: bool = False) -> None:
    """Fetch what the pool lacks of a lock: by file name and hash, no index and no key is needed."""
    lacking = pool.lacking(lock.packages.values(), verify=verify)
    if not lacking:
        return
    sources: list[Source] = []
    if any(one.repository == BASE for one in lacking):
        # the components that the lacking debs come from don't matter
        sources, _ = sources_of(lock.distribution, lock.release, sorted(lock.repositories[BASE].releases), ["main"])
    for name, one in lock.repositories.items():
        if one.uri is not None:
            sources += [Source(one.uri, suite, (), "/dev/null", name) for suite in one.releases]
    apt = Apt(pool.state / "apt" / f"{lock.image}-fill", sources, lock.architecture)
    fetch_debs(pool, lacking, apt)


def fetch_debs(pool: Pool, lacking: Sequence[LockedPackage], apt: Apt) -> None:
    """Fetch debs into the pool. Raises GoldsmithError that names those which the repositories haven't got."""
    if not lacking:
        return
    size = sum(one.size for one in lacking)
    by_hash = {one.sha256: one for one in lacking}
    wanted = [
        # a file name may have %3a in it for an epoch's colon, which isn't an escape of the address
        Wanted(f"{_uri(apt, one)}/{quote(one.filename, safe='/+:~')}", pool.path(one), one.sha256, one.size)
        for one in by_hash.values()
    ]
    with step(f"fetch {len(lacking)} packages, {size / 1e6:.0f} MB") as current:
        require_room(pool, size)
        left = [by_hash[one.sha256] for one in fetch(apt, wanted, pool.incoming, current.say)]
        if left:
            raise GoldsmithError(
                f"the repositories no longer have {names(left)}",
                where="fetch packages",
                hint="take the debs from a pool that has them, or lock anew: goldsmith lock IMAGE --refresh",
            )


def _uri(apt: Apt, package: LockedPackage) -> str:
    """The repository that a package comes from; of the distribution's, `Debian-Security:13/stable-security` is the
    security one."""
    security = package.origin.endswith("-security")
    for source in apt.sources:
        fits = source.suite.endswith(("-security", "/updates")) == security or package.repository != BASE
        if source.repository == package.repository and fits:
            # apt doesn't copy what a file: URI names, it uses it where it lies
            return re.sub(r"^file:", "copy:", source.uri).rstrip("/")
    raise GoldsmithError(f"no suite of the image is where {package.name} comes from", where=package.origin)


def require_room(pool: Pool, size: int) -> None:
    """Raises GoldsmithError if `size` bytes, and the trees that are built of them, won't fit beside the pool."""
    free = shutil.disk_usage(pool.state).free
    # twice: the trees that are built of them come next, and a full disk helps nobody
    if free < 2 * size + 200_000_000:
        raise GoldsmithError(
            f"{size / 1e9:.1f} GB of packages don't fit: {free / 1e9:.1f} GB are free",
            where=str(pool.state),
            hint="make room, or put the state elsewhere: export GOLDSMITH_STATE=/large/disk",
        )


def names(packages: Iterable[LockedPackage]) -> str:
    """`libcuda1 550.163.01-2, …`, eight at most."""
    told = [f"{one.name} {one.version}" for one in packages]
    return ", ".join(told[:8]) + (f" and {len(told) - 8} more" if len(told) > 8 else "")
