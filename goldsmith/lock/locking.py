"""`goldsmith lock`: from image.yml to a full pool and an image.lock, which is written last.

A lock that fits its image is kept as it is. Where image.yml has changed, the packages that it doesn't move stay; all
of them move on --refresh alone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from goldsmith import atomic
from goldsmith.errors import GoldsmithError
from goldsmith.holding import holding
from goldsmith.lock.apt import Apt
from goldsmith.lock.contents import read_deb
from goldsmith.lock.filling import fetch_debs, fill_debs, names, require_room
from goldsmith.lock.index import Index, Release, newest
from goldsmith.lock.keep import keeping
from goldsmith.lock.keys import repository_sources
from goldsmith.lock.known_bad import require_buildable
from goldsmith.lock.patches import read_patches
from goldsmith.lock.pool import Pool
from goldsmith.lock.resolve import Chosen, resolve, upgradable
from goldsmith.lock.sources import sources_of
from goldsmith.lock.tools import require_tools, tool_versions
from goldsmith.lock.wheelhouse import Wheelhouse, names_of, wheels_of
from goldsmith.lock.wheels import require_python, resolve_environment
from goldsmith.model.image import BASE, Image, read_placed
from goldsmith.model.lock import Lock, LockedEnvironment, LockedPackage, LockedRepository, read_lock
from goldsmith.progress import step
from goldsmith.project import state_dir
from goldsmith.role import Role, roles_of
from goldsmith.yamlfile import Places

# counted up when a lock of the same image.yml would come out differently
RULES = 2
# What of an image decides which packages it has; who edits variables and descriptions doesn't ask for other ones.
DECISIVE = {"name", "base", "repositories", "kernel", "stack", "families", "python"}


def image_digest(image: Image, roles: Sequence[Role]) -> str:
    """Of all that decides which packages an image has, the roles' own among them."""
    data = {
        "rules": RULES,
        "image": image.model_dump(mode="json", include=DECISIVE),
        "roles": {role.name: sorted(role.packages) for role in roles if role.packages},
        # left out where there are none, so that locks of before are none the worse
        **({"dkms": image.dkms.model_dump(mode="json")} if image.dkms.patches else {}),
    }
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def lock_fits(image: Image, lock: Lock, roles: Sequence[Role]) -> bool:
    """Whether the lock was made of this image.yml and these roles' packages."""
    return lock.image_digest == image_digest(image, roles)


def _previous(directory: Path, *, anew: bool) -> Lock | None:
    """The lock that is there, which decides what stays.

    anew: nothing stays, so one that can't be read counts as none. Otherwise that is an error: with merge markers in
    it, or of another version of goldsmith, everything would move, and nobody asked for that.
    """
    if not (directory / "image.lock").is_file():
        return None
    try:
        return read_lock(directory)
    except GoldsmithError as error:
        if anew:
            return None
        raise GoldsmithError(
            error.what, where=error.where,
            hint=f"take it from git, so that what image.yml doesn't move stays; or move everything: goldsmith lock "
            f"{directory} --refresh",
        ) from None  # fmt: skip


def lock_image(
    project: Path,
    directory: Path,
    *,
    refresh: bool = False,
    upgrade: Collection[str] = (),
    allow_known_bad: bool = False,
) -> tuple[Lock, Lock | None]:
    """Lock the image of a folder such as images/lab, fill and publish the pool, write image.lock.

    project: whose roles and state are used. refresh: resolve all anew, even if the lock fits. upgrade: packages,
    families and Python projects that move to what image.yml allows now; all others stay unless these force them.
    allow_known_bad: lock also a driver whose module is known not to build for the kernel. Returns the lock and the one
    that was there before, if any. Raises GoldsmithError; then the lock and the published pool are as they were.
    """
    image, places = read_placed(directory)
    roles = roles_of(image.roles, project, lambda number: places.of("roles", number))
    patches = [one.locked for one in read_patches(image, places)]
    if not allow_known_bad:
        require_buildable(image, None, places, directory)  # before anything is fetched, where image.yml says it
    require_tools()
    pool = Pool(state_dir(project))
    with held(pool):
        previous = _previous(directory, anew=refresh)
        if upgrade:
            _require_known(upgrade, previous, directory)
        stays = previous if previous and not refresh and not upgrade and lock_fits(image, previous, roles) else None
        if stays is None:
            lock = _make(pool, image, roles, places, previous, None if refresh else frozenset(upgrade))
            lock = lock.model_copy(update={"patches": patches})
        else:
            _fill(pool, stays)
            # a lock that was made elsewhere names that pool's key; this machine's builds and nodes need ours
            lock = stays.model_copy(update={"pool": pool.model(image.name), "patches": patches})
        if not allow_known_bad:
            require_buildable(image, lock, places, directory)
        _publish(pool, lock)
        text = lock.to_text()
        path = directory / "image.lock"
        if not path.is_file() or path.read_bytes() != text.encode():
            atomic.write(path, text)
    return lock, previous


def _require_known(upgrade: Collection[str], previous: Lock | None, directory: Path) -> None:
    if previous is None:
        raise GoldsmithError(
            "there is no lock to upgrade", where=str(directory / "image.lock"), hint=f"goldsmith lock {directory}"
        )
    wheels = [name for one in previous.environments.values() for name in one.wheels]
    upgradable(upgrade, {one.name: one.family for one in previous.packages.values()}, wheels)


def fill(project: Path, lock: Lock, *, verify: bool = False) -> None:
    """Fetch what the pool lacks of a lock, and publish its index.

    verify: read every deb's hash, not only its size. Raises GoldsmithError that names a deb which the mirror no
    longer has, or if the lock wants the pool signed by a key that isn't this pool's.
    """
    require_tools()
    pool = Pool(state_dir(project))
    with held(pool):
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
    """Read every deb and wheel of a lock. Raises GoldsmithError that names the missing and damaged ones."""
    pool = Pool(state_dir(project))
    wheelhouse = Wheelhouse(pool.root)
    with step(f"verify {_count(lock)} in the pool") as current:
        debs, wheels = pool.lacking(lock.packages.values(), verify=True), wheelhouse.damaged(lock)
        if debs or wheels:
            raise GoldsmithError(
                f"missing or damaged, {len(debs) + len(wheels)} of {_count(lock)}: "
                f"{', '.join(filter(None, (names(debs), names_of(wheels))))}",
                where=str(pool.root),
                hint=f"goldsmith pool fill images/{lock.image} --verify",
            )
        if faults := [*pool.faults(lock), *wheelhouse.faults(lock)]:
            raise GoldsmithError(
                "; ".join(faults[:4]), where=str(pool.root), hint=f"goldsmith pool images/{lock.image} makes it anew"
            )
        current.result = "all as locked"


def _count(lock: Lock) -> str:
    wheels = len(wheels_of(lock.environments))
    return f"{len(lock.packages)} packages" + (f" and {wheels} wheels" if lock.environments else "")


def _fill(pool: Pool, lock: Lock, *, verify: bool = False) -> None:
    """Fetch what the pool lacks of a lock, debs and wheels."""
    fill_debs(pool, lock, verify=verify)
    _fetch_wheels(pool, lock.environments, verify=verify)


def _fetch_wheels(pool: Pool, environments: Mapping[str, LockedEnvironment], *, verify: bool = False) -> None:
    wheelhouse = Wheelhouse(pool.root)
    lacking = wheelhouse.lacking(wheels_of(environments), verify=verify)
    if lacking:
        size = sum(one.size for one in lacking)
        require_room(pool, size)
        with step(f"fetch {len(lacking)} wheels, {size / 1e6:.0f} MB") as current:
            wheelhouse.fetch(environments, pool.state / "uv", current.say, verify=verify)


@contextmanager
def held(pool: Pool) -> Iterator[None]:
    """The pool, for us alone; downloads that a killed run left are swept first."""
    with holding(pool.lock_file, f"the package pool {pool.root}"):
        try:
            shutil.rmtree(pool.incoming, ignore_errors=True)
            pool.incoming.mkdir(parents=True, mode=0o700)
            yield
        finally:
            shutil.rmtree(pool.incoming, ignore_errors=True)


def repositories(pool: Pool, image: Image, places: Places) -> tuple[Apt, Index, list[Release]]:
    """The image's repositories, the distribution's and its own: fetched, verified and read."""
    base = image.base
    folder = pool.state / "apt" / image.name
    sources, origin = sources_of(base.distribution, base.release, base.suites, base.components)
    own = f", {', '.join(image.repositories)}" if image.repositories else ""
    with step(f"fetch the package indexes of {base.distribution} {base.release} ({origin}){own}") as current:
        fetcher = Apt(folder, sources, base.architecture)
        sources += repository_sources(image, places, pool.state / "apt" / "keys", fetcher, current.say)
        apt = Apt(folder, sources, base.architecture)
        apt.update(current.say)
        current.say("reading")
        index, releases = apt.read()
        current.result = f"{len(index.by_name)} packages"
    return apt, index, releases


def _make(
    pool: Pool, image: Image, roles: Sequence[Role], places: Places, previous: Lock | None,
    upgrade: frozenset[str] | None,
) -> Lock:  # fmt: skip
    """Resolve, fetch, look inside. previous: where packages stay; what it knows of the same debs isn't read again.
    upgrade: what doesn't stay, None for nothing does."""
    apt, index, releases = repositories(pool, image, places)
    with step(f"resolve image {image.name}") as current:
        keep = keeping(previous, upgrade) if previous and upgrade is not None else None
        chosen = resolve(apt, index, image, roles, places, keep)
        size = sum(one.candidate.size for one in chosen.values())
        current.result = f"{len(chosen)} packages, {size / 1e6:.0f} MB"
    packages = {name: _locked(one) for name, one in chosen.items()}
    fetch_debs(pool, pool.lacking(packages.values()), apt)
    packages = _with_contents(pool, packages, previous)
    environments = _environments(pool, image, packages, places, previous, upgrade)
    _fetch_wheels(pool, environments)
    return Lock(
        schema=1,
        image=image.name,
        image_digest=image_digest(image, roles),
        distribution=image.base.distribution,
        release=image.base.release,
        architecture=image.base.architecture,
        kernel=image.kernel.release if image.kernel else None,
        created=newest(releases),
        repositories=_repositories(image, releases),
        tools=tool_versions(wheels=bool(environments)),
        pool=pool.model(image.name),
        packages=packages,
        environments=environments,
    )


def _environments(
    pool: Pool, image: Image, packages: Mapping[str, LockedPackage], places: Places, previous: Lock | None,
    upgrade: frozenset[str] | None,
) -> dict[str, LockedEnvironment]:  # fmt: skip
    """The image's Python environments, their wheels chosen by uv."""
    found = {}
    base = image.base
    python3 = packages["python3"].version if "python3" in packages else None
    for name, one in image.python.items():
        with step(f"resolve Python environment {name}") as current:
            require_python(name, one, python3, places)
            before = previous.environments.get(name) if previous else None
            found[name] = resolve_environment(
                name, one, base.distribution, base.release, base.architecture, pool.state / "uv", before, upgrade,
                places, current.say,
            )  # fmt: skip
            current.result = f"{len(found[name].wheels)} wheels"
    return found


def _repositories(image: Image, releases: Sequence[Release]) -> dict[str, LockedRepository]:
    """What a lock says of each repository."""
    own = {name: (one.uri, one.key.fingerprint) for name, one in image.repositories.items()}
    found = {}
    for name in [BASE, *own]:
        uri, fingerprint = own.get(name, (None, None))
        digests = {one.suite: one.sha256 for one in releases if one.repository == name}
        found[name] = LockedRepository(uri=uri, fingerprint=fingerprint, releases=digests)
    return found


def _locked(one: Chosen) -> LockedPackage:
    """A chosen package as a lock has it: the same fields, and why."""
    package = one.candidate
    same = {name: getattr(package, name) for name in LockedPackage.model_fields if hasattr(package, name)}
    return LockedPackage(**same, why=one.why, family=one.family)


def _with_contents(
    pool: Pool, packages: Mapping[str, LockedPackage], previous: Lock | None
) -> dict[str, LockedPackage]:
    """The same, with what is in the families' packages: shared libraries, units, apt preferences."""
    known: dict[str, dict[str, Any]] = {}
    for one in previous.packages.values() if previous else ():
        if one.family:
            known[one.sha256] = {"files": one.files, "units": one.units, "apart": one.apart}
    families = [one for one in packages.values() if one.family]
    unread = sorted((one for one in families if one.sha256 not in known), key=lambda one: -one.size)
    with step(f"read the contents of {len(families)} family packages") as current:
        # unpacking keeps a core busy in a program of its own: one for each, the largest deb first
        with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
            reading = {one.sha256: workers.submit(read_deb, pool.path(one)) for one in unread}
            try:
                for one in unread:
                    current.say(one.name)
                    read = reading[one.sha256].result()
                    known[one.sha256] = {
                        "files": read.libraries, "units": list(read.units), "apart": read.preferences,
                    }  # fmt: skip
            except BaseException:
                workers.shutdown(cancel_futures=True)
                raise
        current.result = f"{sum(len(known[one.sha256]['files']) for one in families)} libraries"
    full = {one.name: one.model_copy(update=known[one.sha256]) for one in families}
    return {**packages, **full}


def _publish(pool: Pool, lock: Lock) -> None:
    wheelhouse = Wheelhouse(pool.root)
    if not (pool.faults(lock) or wheelhouse.faults(lock)):
        return
    with step(f"index and sign the pool for {lock.image}") as current:
        wheelhouse.publish(lock)
        pool.publish(lock)
        current.result = _count(lock)
