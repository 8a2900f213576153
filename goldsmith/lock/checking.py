"""`goldsmith lock --check`: whether a lock fits its image.yml, and whether its packages can still be had.

It changes no lock and no pool; the indexes that it fetches are those of the image's own apt state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.lock.index import Index
from goldsmith.lock.locking import held, lock_fits, repositories
from goldsmith.lock.pool import Pool
from goldsmith.model.finding import Severity
from goldsmith.model.image import read_placed
from goldsmith.model.lock import Lock, LockedPackage, read_lock
from goldsmith.project import state_dir
from goldsmith.role import roles_of


@dataclass(frozen=True)
class Verdict:
    severity: Severity
    what: str


@dataclass(frozen=True)
class Gone:
    """A locked package that its repository no longer has. instead: what is there now, in words. pooled: the pool has
    the deb, so that builds and nodes install it as before."""

    package: LockedPackage
    instead: str
    pooled: bool


def check_lock(project: Path, directory: Path, *, offline: bool = False) -> list[Verdict]:
    """What there is to say about the lock of a folder such as images/lab; the first verdict is about its fit.

    offline: leave the repositories alone, and unmentioned. Raises GoldsmithError where there is no image.
    """
    image, places = read_placed(directory)
    roles = roles_of(image.roles, project, lambda number: places.of("roles", number))
    path = directory / "image.lock"
    try:
        lock = read_lock(directory)
    except GoldsmithError as error:
        return [Verdict(Severity.FAIL, f"{path}: {error.what}")]
    if not lock_fits(image, lock, roles):
        return [Verdict(Severity.FAIL, f"{path}: is stale, image.yml or a role's packages changed since")]
    verdicts = [Verdict(Severity.OK, f"{path}: fits image.yml")]
    if offline:
        return verdicts
    pool = Pool(state_dir(project))
    try:
        with held(pool):
            _, index, _ = repositories(pool, image, places)
    except GoldsmithError as error:
        return [*verdicts, Verdict(Severity.UNKNOWN, f"whether all of it can still be had isn't known: {error}")]
    missing = list(gone(lock, index, pool))
    for one in missing:
        where = "the pool has it, so builds and nodes install it as before" if one.pooled else "and the pool hasn't it"
        told = f"{one.package.repository} no longer has {one.package.name} {one.package.version}"
        severity = Severity.WARN if one.pooled else Severity.FAIL
        verdicts.append(Verdict(severity, f"{told} (now: {one.instead}); {where}"))
    if not missing:
        verdicts.append(Verdict(Severity.OK, f"the repositories have all {len(lock.packages)} packages"))
    return verdicts


def gone(lock: Lock, index: Index, pool: Pool) -> Iterator[Gone]:
    """The locked packages that no repository of the image has any more with this content."""
    for one in lock.packages.values():
        offered = [here for here in index.versions(one.name) if here.repository == one.repository]
        if any(here.sha256 == one.sha256 for here in offered):
            continue
        same = any(here.version == one.version for here in offered)
        # a rebuild under the same version number is another package
        instead = "other content under the same version" if same else ", ".join(here.version for here in offered[:3])
        yield Gone(one, instead or "no version of it", not pool.lacking([one], verify=True))
