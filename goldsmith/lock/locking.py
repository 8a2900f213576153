"""`goldsmith lock`: from image.yml to a full pool and an image.lock, which is written last.

A lock that fits its image is kept as it is: packages move only when image.yml's packages do, or on --refresh.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from goldsmith import atomic
from goldsmith.errors import GoldsmithError
from goldsmith.holding import holding
from goldsmith.lock.apt import Apt
from goldsmith.lock.contents import libraries
from goldsmith.lock.fetch import Wanted, fetch
from goldsmith.lock.index import newest
from goldsmith.lock.pool import Pool
from goldsmith.lock.resolve import Chosen, resolve
from goldsmith.lock.sources import sources_of
from goldsmith.lock.tools import require_tools, tool_versions
from goldsmith.model.image import Image, read_image
from goldsmith.model.lock import Lock, LockedPackage, read_lock
from goldsmith.progress import step
from goldsmith.project import state_dir
from goldsmith.role import Role, roles_of
from goldsmith.yamlfile import Places

# counted up when a lock of the same image.yml would come out differently
RULES = 1


def image_digest(image: Image, roles: Sequence[Role]) -> str:
    """Of all that decides which packages an image has: base, families, and the roles' packages.

    Not of variables and descriptions: who edits those doesn't ask for other packages.
    """
    data = {
        "rules": RULES,
        "name": image.name,
        "base": image.base.model_dump(mode="json"),
        "families": {name: one.model_dump(mode="json") for name, one in image.families.items()},
        "roles": {role.name: sorted(role.packages) for role in roles if role.packages},
    }
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def lock_fits(image: Image, lock: Lock, roles: Sequence[Role]) -> bool:
    """Whether the lock was made of this image.yml and these roles' packages."""
    return lock.image_digest == image_digest(image, roles)


def existing_lock(directory: Path, image: Image, roles: Sequence[Role]) -> Lock | None:
    """The lock of a folder if there is one that fits."""
    lock = _readable_lock(directory)
    return lock if lock and lock_fits(image, lock, roles) else None


def _readable_lock(directory: Path) -> Lock | None:
    """A lock that can't be read counts as none, for it is made anew."""
    if not (directory / "image.lock").is_file():
        return None
    try:
        return read_lock(directory)
    except GoldsmithError:
        return None


def lock_image(project: Path, directory: Path, *, refresh: bool = False) -> Lock:
    """Lock the image of a folder such as images/lab, fill and publish the pool, write image.lock.

    project: whose roles and state are used. refresh: resolve anew even if the lock fits.
    Raises GoldsmithError; then the lock and the published pool are as they were.
    """
    require_tools()
    image = read_image(directory)
    roles = roles_of(image.roles, project, str(directory / "image.yml"))
    pool = Pool(state_dir(project))
    with _held(pool):
        previous = _readable_lock(directory)
        lock = previous if previous and not refresh and lock_fits(image, previous, roles) else None
        if lock is None:
            lock = _make(pool, image, roles, Places(directory / "image.yml"), previous)
        else:
            _fill(pool, lock)
            # a lock that was made elsewhere names that pool's key; this machine's builds and nodes need ours
            lock = lock.model_copy(update={"pool": pool.model(image.name)})
        _publish(pool, lock)
        text = lock.to_text()
        path = directory / "image.lock"
        if not path.is_file() or path.read_text() != text:
            atomic.write(path, text)
    return lock


def fill(project: Path, lock: Lock, *, verify: bool = False) -> None:
    """Fetch what the pool lacks of a lock, and publish its index.

    verify: read every deb's hash, not only its size. Raises GoldsmithError that names a deb which the mirror no
    longer has, or if the lock wants the pool signed by a key that isn't this pool's.
    """
    require_tools()
    pool = Pool(state_dir(project))
    with _held(pool):
        _fill(pool, lock, verify=verify)
        _publish(pool, lock)
        if (ours := pool.key().fingerprint) != lock.pool.fingerprint:
            raise GoldsmithError(
                f"the lock names the pool key {lock.pool.fingerprint}, this pool signs with {ours}",
                where=f"images/{lock.image}/image.lock, pool.fingerprint",
                hint=f"`goldsmith lock images/{lock.image}` takes this pool's key into the lock and leaves the "
                "packages as they are; or put the other pool's pool-key folder in place",
            )


def verify(project: Path, lock: Lock) -> None:
    """Read every deb of a lock. Raises GoldsmithError that names the missing and damaged ones."""
    pool = Pool(state_dir(project))
    with step(f"verify {len(lock.packages)} packages in the pool") as current:
        bad = pool.lacking(lock.packages.values(), verify=True)
        if bad:
            raise GoldsmithError(
                f"{len(bad)} of {len(lock.packages)} packages are missing or damaged: {_names(bad)}",
                where=str(pool.root),
                hint=f"goldsmith pool fill images/{lock.image} --verify",
            )
        if not pool.is_published(lock):
            raise GoldsmithError(
                f"the pool's index of {lock.image} isn't this lock's",
                where=str(pool.root / "dists" / lock.image),
                hint=f"goldsmith pool fill images/{lock.image}",
            )
        current.result = "all as locked"


@contextmanager
def _held(pool: Pool) -> Iterator[None]:
    """The pool, for us alone; downloads that a killed run left are swept first."""
    with holding(pool.lock_file, f"the package pool {pool.root}"):
        try:
            shutil.rmtree(pool.incoming, ignore_errors=True)
            pool.incoming.mkdir(parents=True, mode=0o700)
            yield
        finally:
            shutil.rmtree(pool.incoming, ignore_errors=True)


def _make(pool: Pool, image: Image, roles: Sequence[Role], places: Places, previous: Lock | None) -> Lock:
    """Resolve, fetch, look inside. previous: what it knows of the same debs isn't read again."""
    base = image.base
    sources, origin = sources_of(base.distribution, base.release, base.suites, base.components)
    apt = Apt(pool.state / "apt" / image.name, sources, base.architecture)
    with step(f"fetch the package indexes of {base.distribution} {base.release} ({origin})") as current:
        apt.update(current.say)
        current.say("reading")
        index, releases = apt.read()
        current.result = f"{len(index.by_name)} packages"
    with step(f"resolve image {image.name}") as current:
        chosen = resolve(apt, index, image, roles, places)
        size = sum(one.candidate.size for one in chosen.values())
        current.result = f"{len(chosen)} packages, {size / 1e6:.0f} MB"
    packages = {name: _locked(one) for name, one in chosen.items()}
    _fetch(pool, pool.lacking(packages.values()), apt)
    packages = _with_files(pool, packages, previous)
    return Lock(
        schema=1,
        image=image.name,
        image_digest=image_digest(image, roles),
        distribution=base.distribution,
        release=base.release,
        architecture=base.architecture,
        created=newest(releases),
        releases={suite: one.sha256 for suite, one in releases.items()},
        tools=tool_versions(),
        pool=pool.model(image.name),
        packages=packages,
    )


def _locked(one: Chosen) -> LockedPackage:
    package = one.candidate
    return LockedPackage(
        name=package.name,
        version=package.version,
        architecture=package.architecture,
        source=package.source,
        sha256=package.sha256,
        size=package.size,
        filename=package.filename,
        origin=package.origin,
        why=one.why,
        family=one.family,
    )


def _with_files(pool: Pool, packages: Mapping[str, LockedPackage], previous: Lock | None) -> dict[str, LockedPackage]:
    """The same, with the shared libraries of the families' packages."""
    known = {one.sha256: one.files for one in previous.packages.values() if one.family} if previous else {}
    families = [one for one in packages.values() if one.family]
    unread = sorted((one for one in families if one.sha256 not in known), key=lambda one: -one.size)
    with step(f"read the libraries of {len(families)} family packages") as current:
        # unpacking keeps a core busy in a program of its own: one for each, the largest deb first
        with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
            reading = {one.sha256: workers.submit(libraries, pool.path(one)) for one in unread}
            try:
                for one in unread:
                    current.say(one.name)
                    known[one.sha256] = reading[one.sha256].result()
            except BaseException:
                workers.shutdown(cancel_futures=True)
                raise
        current.result = f"{sum(len(known[one.sha256]) for one in families)} libraries"
    read = {one.name: one.model_copy(update={"files": known[one.sha256]}) for one in families}
    return {**packages, **read}


def _fill(pool: Pool, lock: Lock, *, verify: bool = False) -> None:
    """Fetch what the pool lacks of a lock: by file name and hash, no index is needed."""
    lacking = pool.lacking(lock.packages.values(), verify=verify)
    if not lacking:
        return
    # the suites and components that the lacking debs come from are all that matters
    suites = sorted(lock.releases)
    sources, _ = sources_of(lock.distribution, lock.release, suites, ["main"])
    apt = Apt(pool.state / "apt" / f"{lock.image}-fill", sources, lock.architecture)
    _fetch(pool, lacking, apt)


def _fetch(pool: Pool, lacking: Sequence[LockedPackage], apt: Apt) -> None:
    """Fetch debs into the pool. Raises GoldsmithError that names those which the mirror hasn't got."""
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
        _room(pool, size)
        left = [by_hash[one.sha256] for one in fetch(apt, wanted, pool.incoming, current.say)]
        if left:
            raise GoldsmithError(
                f"the mirror no longer has {_names(left)}",
                where="fetch packages",
                hint="take the debs from a pool that has them, or lock anew: goldsmith lock IMAGE --refresh",
            )


def _uri(apt: Apt, package: LockedPackage) -> str:
    """The archive that a package's origin names: `Debian-Security:13/stable-security` is the security one."""
    security = package.origin.endswith("-security")
    for source in apt.sources:
        if source.suite.endswith(("-security", "/updates")) == security:
            # apt doesn't copy what a file: URI names, it uses it where it lies
            return re.sub(r"^file:", "copy:", source.uri).rstrip("/")
    raise GoldsmithError(f"no suite of the image is where {package.name} comes from", where=package.origin)


def _room(pool: Pool, size: int) -> None:
    free = shutil.disk_usage(pool.state).free
    # twice: the trees that are built of them come next, and a full disk helps nobody
    if free < 2 * size + 200_000_000:
        raise GoldsmithError(
            f"{size / 1e9:.1f} GB of packages don't fit: {free / 1e9:.1f} GB are free",
            where=str(pool.state),
            hint="make room, or put the state elsewhere: export GOLDSMITH_STATE=/large/disk",
        )


def _publish(pool: Pool, lock: Lock) -> None:
    if pool.is_published(lock):
        return
    with step(f"index and sign the pool for {lock.image}") as current:
        pool.publish(lock)
        current.result = f"{len(lock.packages)} packages"


def _names(packages: Sequence[LockedPackage]) -> str:
    names = [f"{one.name} {one.version}" for one in packages]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
