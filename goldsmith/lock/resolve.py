"""From an image to exact packages: its pins, apt's own choice of the rest, and why each package is there.

What is asked of apt: the Essential packages of the release and apt itself (what a bootstrap makes), the image's base,
its kernel, stack and families, and its roles' packages. A family moves as one: every other binary package of its
sources that the image needs is pinned to the same source version and belongs to the family, too
(lyulyul/shine-cluster#30).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from goldsmith.errors import GoldsmithError
from goldsmith.lock.apt import Apt, Inst
from goldsmith.lock.depends import needed_by
from goldsmith.lock.index import Candidate, Index
from goldsmith.lock.keep import Keep
from goldsmith.lock.version import matches
from goldsmith.model.image import BASE, Image
from goldsmith.model.stack import Family
from goldsmith.role import Role
from goldsmith.yamlfile import Places


@dataclass(frozen=True)
class Chosen:
    """One package of the image, why it is there, and the family it moves with."""

    candidate: Candidate
    why: str
    family: str | None


@dataclass(frozen=True)
class Pins:
    """exact: package → version of the families' own packages. siblings: of the same sources' other packages.
    owners: names that several repositories have → the version of the one they are taken from."""

    exact: Mapping[str, str]
    siblings: Mapping[str, str]
    owners: Mapping[str, str]

    @property
    def all(self) -> dict[str, str]:
        return {**self.owners, **self.siblings, **self.exact}


def resolve(
    apt: Apt, index: Index, image: Image, roles: Sequence[Role], places: Places, keep: Keep | None = None
) -> dict[str, Chosen]:
    """name → the chosen package, for every package of the image.

    keep: which packages stay at the version that an earlier lock has, unless something else forces them.
    Raises GoldsmithError with file, line and field for an unknown package or a pin that no repository has, and
    with apt's reason for packages that can't be together.
    """
    keep = keep or Keep({})
    reasons = root_reasons(index, image, roles, places)
    pins = pin_families(image, index, places, keep)
    wanted = [f"{name}={pins.exact[name]}" if name in pins.exact else name for name in reasons]
    keep = keep.offered(index)
    while True:
        apt.pin({**keep.versions, **pins.all})
        try:
            installed = apt.simulate(wanted)
            break
        except GoldsmithError as error:
            freed = keep.freed_by(error.what, index)
            if freed == keep:
                raise _explained(error, image, places) from None
            keep = freed
    return choose(index, image, installed, reasons, places)


def _explained(error: GoldsmithError, image: Image, places: Places) -> GoldsmithError:
    listed = ", ".join(f"{path[-1]} {one.version}" for path, one in image.sets.items() if one.version)
    hint = f"the pins are {listed}; change one, or what asks for the other version" if listed else ""
    return GoldsmithError(error.what, where=places.of("stack"), hint=hint)


def root_reasons(index: Index, image: Image, roles: Sequence[Role], places: Places) -> dict[str, str]:
    """Every package that is asked for → `base`, `family NAME` or `role NAME`, the first that asks."""
    reasons: dict[str, str] = {}
    for number, name in enumerate(image.base.packages):
        _must_exist(index, name, places.of("base", "packages", number))
        reasons.setdefault(name, "base")
    for path, data in image.sets.items():
        for number, name in enumerate(data.packages):
            _must_exist(index, name, places.of(*path, "packages", number))
            if reasons.get(name, "").startswith("family"):
                raise GoldsmithError(
                    f"{name} is in {reasons[name]} already",
                    where=places.of(*path, "packages", number),
                    hint="a package moves with one family",
                )
            reasons[name] = f"family {path[-1]}"
    for role in roles:
        for name in role.packages:
            _must_exist(index, name, f"{_short(role.path)}/__init__.py, PACKAGES")
            reasons.setdefault(name, f"role {role.name}")
    for name in [*index.essential(), "apt"]:
        reasons.setdefault(name, "base")
    return reasons


def _short(path: Path) -> str:
    return "/".join(path.parts[-2:])


def _must_exist(index: Index, name: str, where: str) -> None:
    if name in index.by_name:
        return
    if providers := index.providers(name):
        raise GoldsmithError(
            f"{name} is a virtual package", where=where, hint=f"name a real one: {', '.join(providers[:6])}"
        )
    near = index.nearest(name)
    hint = f"did you mean {' or '.join(near)}?" if near else "is its component among base.components?"
    raise GoldsmithError(f"no repository has a package {name}", where=where, hint=hint)


def pin_families(image: Image, index: Index, places: Places, keep: Keep | None = None) -> Pins:
    """The exact versions that the image's pins come to.

    The highest matching version wins, but one that is kept comes first. Raises GoldsmithError, with the nearest
    candidates, where none matches.
    """
    kept = keep.versions if keep else {}
    exact: dict[str, str] = {}
    siblings: dict[str, str] = {}
    for path, data in image.sets.items():
        for name in data.packages:
            pin = data.pin(name)
            known = [one for one in index.versions(name) if data.repository in (None, one.repository)]
            if pin is None and data.repository is None:
                continue
            fitting = [one for one in known if pin is None or matches(pin, one.version)]
            if not fitting:
                raise _no_such(path, data, name, index.versions(name), places)
            match = next((one for one in fitting if one.version == kept.get(name)), fitting[0])
            exact[name] = match.version
            for sibling in index.of_source(match.source, match.source_version):
                siblings.setdefault(sibling.name, sibling.version)
    return Pins(exact, siblings, owners(image, index, kept))


def _no_such(
    path: tuple[str, ...], data: Family, name: str, known: Sequence[Candidate], places: Places
) -> GoldsmithError:
    pin = data.pin(name)
    field = ("versions", name) if name in data.versions else ("version",) if pin else ("repository",)
    whose = f"repository {data.repository}" if data.repository else "no repository"
    verb = "has no" if data.repository else "has"
    return GoldsmithError(
        f"{whose} {verb} {name}{f' at {pin}' if pin else ''}",
        where=places.of(*path, *field),
        hint=f"it is there at {_offers(known)}",
    )


def _offers(candidates: Iterable[Candidate]) -> str:
    """`550.163.01-2 (Debian:13.2/stable)`, the highest first, each version once."""
    offers: dict[str, str] = {}
    for one in candidates:
        offers.setdefault(one.version, one.origin if one.repository == BASE else one.repository)
    return ", ".join(f"{version} ({origin})" for version, origin in list(offers.items())[:5])


def owners(image: Image, index: Index, kept: Mapping[str, str]) -> dict[str, str]:
    """A name that several repositories have is the distribution's, or else that of the repository which image.yml
    names first; a family's `repository`, and its pins, say otherwise.

    A higher version elsewhere never wins by being higher: that is how a driver from one repository came to run with
    a fabric manager from another (aws/aws-parallelcluster#3034, akash-network/website#632).
    """
    rank = {name: number for number, name in enumerate([BASE, *image.repositories])}
    pins = {}
    for name, group in index.by_name.items():
        if len({one.repository for one in group}) < 2:
            continue
        first = min((one.repository for one in group), key=rank.__getitem__)
        versions = [one.version for one in index.versions(name) if one.repository == first]
        pins[name] = kept[name] if kept.get(name) in versions else versions[0]
    return pins


def choose(
    index: Index, image: Image, installed: Iterable[Inst], reasons: Mapping[str, str], places: Places
) -> dict[str, Chosen]:
    """apt's decision joined with what the indexes know, and with the families."""
    candidates = {one.name: index.find(one.name, one.version, one.origin) for one in installed}
    families = source_families(image, candidates)
    needed = needed_by(candidates, reasons)
    chosen: dict[str, Chosen] = {}
    for name, candidate in sorted(candidates.items()):
        why = reasons.get(name) or f"needed by {needed[name]}"
        own = why.removeprefix("family ") if why.startswith("family ") else None
        chosen[name] = Chosen(candidate, why, own or families.get(candidate.source))
    _check_whole(image, chosen, places)
    _check_repositories(image, chosen, places)
    return chosen


def source_families(image: Image, candidates: Mapping[str, Candidate]) -> dict[str, str]:
    """source → the family that its packages move with; of two families the first one named."""
    families: dict[str, str] = {}
    for path, data in image.sets.items():
        for name in data.packages:
            if name in candidates:
                families.setdefault(candidates[name].source, path[-1])
    return families


def _check_whole(image: Image, chosen: Mapping[str, Chosen], places: Places) -> None:
    """A family whose source came in two versions isn't one set: the very thing a lock is there to prevent."""
    fields = {path[-1]: path for path in image.sets}
    seen: dict[tuple[str, str], Candidate] = {}
    for one in chosen.values():
        if one.family is None:
            continue
        first = seen.setdefault((one.family, one.candidate.source), one.candidate)
        if first.source_version != one.candidate.source_version:
            raise GoldsmithError(
                f"family {one.family} would be torn: {first.name} {first.version}, but {one.candidate.name} "
                f"{one.candidate.version}, both of source {first.source}",
                where=places.of(*fields[one.family]),
                hint="pin both to one version, or put them into different families with their own sources",
            )


def _check_repositories(image: Image, chosen: Mapping[str, Chosen], places: Places) -> None:
    """Two repositories may have the same version of a package, with other content: apt takes either."""
    for path, data in image.sets.items():
        for name in data.packages:
            got = chosen[name].candidate.repository if name in chosen else data.repository
            if data.repository not in (None, got):
                raise GoldsmithError(
                    f"{name} {chosen[name].candidate.version} would come from {got}, not from {data.repository}",
                    where=places.of(*path, "repository"),
                    hint="both repositories have that very version: leave one of them out",
                )


def upgradable(names: Iterable[str], known: Mapping[str, str | None], wheels: Iterable[str]) -> None:
    """Raises GoldsmithError for a name of --upgrade that is no package, family or Python project of the lock.

    known: package → family.
    """
    there = {*known, *(one for one in known.values() if one), *wheels}
    for name in names:
        if name not in there and canonicalize_name(name) not in there:
            near = difflib.get_close_matches(name, there, n=3)
            raise GoldsmithError(
                f"the lock has no package, family or Python project {name}", where="--upgrade",
                hint=f"did you mean {' or '.join(near)}?" if near else "goldsmith lock IMAGE --show lists the families",
            )  # fmt: skip
