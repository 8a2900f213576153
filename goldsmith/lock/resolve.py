"""Which packages an image comes to: its pins made exact versions, everything else chosen by apt itself.

Roots are what mmdebstrap's apt variant installs (the essential packages and apt), the image's base packages, its
families and its roles' packages. A family moves as one: every other binary package of its sources that the image
needs is pinned to the same source version and belongs to the family, too (lyulyul/shine-cluster#30).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.lock.apt import Apt, Inst
from goldsmith.lock.index import Candidate, Index
from goldsmith.lock.version import matches
from goldsmith.model.image import Image
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
    """exact: package → version of the families' own packages. siblings: of the same sources' other packages."""

    exact: Mapping[str, str]
    siblings: Mapping[str, str]

    @property
    def all(self) -> dict[str, str]:
        return {**self.siblings, **self.exact}


def resolve(apt: Apt, index: Index, image: Image, roles: Sequence[Role], places: Places) -> dict[str, Chosen]:
    """name → the chosen package, for every package of the image.

    Raises GoldsmithError with file, line and field for an unknown package or a pin that no repository has, and
    with apt's reason for packages that can't be together.
    """
    reasons = root_reasons(index, image, roles, places)
    pins = pin_families(image, index, places)
    apt.pin(pins.all)
    wanted = [f"{name}={pins.exact[name]}" if name in pins.exact else name for name in reasons]
    try:
        installed = apt.simulate(wanted)
    except GoldsmithError as error:
        listed = ", ".join(f"{name} {one.version}" for name, one in image.families.items() if one.version)
        hint = f"the pins are {listed}; change one, or what asks for the other version" if listed else ""
        raise GoldsmithError(error.what, where=places.of("families"), hint=hint) from None
    return choose(index, image, installed, reasons, places)


def root_reasons(index: Index, image: Image, roles: Sequence[Role], places: Places) -> dict[str, str]:
    """Every package that is asked for → `base`, `family NAME` or `role NAME`, the first that asks."""
    reasons: dict[str, str] = {}
    for number, name in enumerate(image.base.packages):
        _must_exist(index, name, places.of("base", "packages", number))
        reasons.setdefault(name, "base")
    for family, data in image.families.items():
        for number, name in enumerate(data.packages):
            _must_exist(index, name, places.of("families", family, "packages", number))
            if reasons.get(name, "").startswith("family"):
                raise GoldsmithError(
                    f"{name} is in {reasons[name]} already",
                    where=places.of("families", family, "packages", number),
                    hint="a package moves with one family",
                )
            reasons[name] = f"family {family}"
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


def pin_families(image: Image, index: Index, places: Places) -> Pins:
    """The exact versions that the image's pins come to.

    The highest matching version wins. Raises GoldsmithError, with the nearest candidates, where none matches.
    """
    exact: dict[str, str] = {}
    siblings: dict[str, str] = {}
    for family, data in image.families.items():
        for name in data.packages:
            pin = data.pin(name)
            if pin is None:
                continue
            known = index.versions(name)
            match = next((one for one in known if matches(pin, one.version)), None)
            if match is None:
                field = ("versions", name) if name in data.versions else ("version",)
                raise GoldsmithError(
                    f"no repository has {name} at {pin}",
                    where=places.of("families", family, *field),
                    hint=f"it is there at {_offers(known)}",
                )
            exact[name] = match.version
            for sibling in index.of_source(match.source, match.source_version):
                siblings.setdefault(sibling.name, sibling.version)
    return Pins(exact, siblings)


def _offers(candidates: Iterable[Candidate]) -> str:
    """`550.163.01-2 (Debian:13.2/stable)`, the highest first, each version once."""
    offers: dict[str, str] = {}
    for one in candidates:
        offers.setdefault(one.version, one.origin)
    return ", ".join(f"{version} ({origin})" for version, origin in list(offers.items())[:5])


def choose(
    index: Index, image: Image, installed: Iterable[Inst], reasons: Mapping[str, str], places: Places
) -> dict[str, Chosen]:
    """apt's decision joined with what the indexes know, and with the families."""
    candidates = {one.name: index.find(one.name, one.version, one.origin) for one in installed}
    families = source_families(image, candidates)
    chosen: dict[str, Chosen] = {}
    for name, candidate in sorted(candidates.items()):
        why = reasons.get(name, "needed")
        own = why.removeprefix("family ") if why.startswith("family ") else None
        chosen[name] = Chosen(candidate, why, own or families.get(candidate.source))
    _check_whole(image, chosen, places)
    return chosen


def source_families(image: Image, candidates: Mapping[str, Candidate]) -> dict[str, str]:
    """source → the family that its packages move with; of two families the first one named."""
    families: dict[str, str] = {}
    for family, data in image.families.items():
        for name in data.packages:
            if name in candidates:
                families.setdefault(candidates[name].source, family)
    return families


def _check_whole(image: Image, chosen: Mapping[str, Chosen], places: Places) -> None:
    """A family whose source came in two versions isn't one set: the very thing a lock is there to prevent."""
    seen: dict[tuple[str, str], Candidate] = {}
    for one in chosen.values():
        if one.family is None:
            continue
        first = seen.setdefault((one.family, one.candidate.source), one.candidate)
        if first.source_version != one.candidate.source_version:
            raise GoldsmithError(
                f"family {one.family} would be torn: {first.name} {first.version}, but {one.candidate.name} "
                f"{one.candidate.version}, both of source {first.source}",
                where=places.of("families", one.family),
                hint="pin both to one version, or put them into different families with their own sources",
            )
