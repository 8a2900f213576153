"""An image as rules see it: its packages and their versions, from the lock where there is one, else from image.yml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from goldsmith.lint.facts import Facts
from goldsmith.model.image import BASE, Image
from goldsmith.model.lock import Lock, upstream
from goldsmith.model.stack import Environment, Family

Field = tuple[str | int, ...]
# Well-known set → the names of packages that are what rules judge, wherever an image names them: in the set, in a
# family of its own, in base.packages. The driver's are those that have its version, in every repository.
OWN = {
    "driver": (
        r"libnvidia-(cfg1|common|compute|decode|encode|extra|fbc1|gl|gpucomp)-\d+(-server)?|libcuda1|libnvidia-ml1"
        r"|nvidia-(driver|utils|compute-utils|dkms|kernel-source|kernel-common|headless|headless-no-dkms|firmware)-\d+"
        r"(-server)?(-open)?|nvidia-(driver|open|smi|kernel-dkms|open-kernel-dkms)|nvidia-open-\d+|cuda-drivers(-\d+)?"
    ),
    "fabricmanager": r"(nvidia|cuda-drivers)-fabricmanager(-\d+)?",
    "imex": r"nvidia-imex(-\d+)?",
    "nvlsm": r"nvlsm",
    "nccl": r"libnccl2|libnccl-dev",
    "container_toolkit": r"nvidia-container-toolkit(-base)?|libnvidia-container1|libnvidia-container-tools",
}
# How many dots a whole version has at least: 580 is a branch of the driver, that no package has as its version.
DOTS = {"driver": 1, "fabricmanager": 1, "imex": 1, "nccl": 2, "container_toolkit": 2}


@dataclass(frozen=True)
class Known:
    """A version and where it stands. package: in the lock, if image.yml doesn't say it."""

    version: str
    field: Field
    package: str = ""

    def __str__(self) -> str:
        return self.version


@dataclass(frozen=True)
class Named:
    """A package that the image has. field: where image.yml names it, or the set that the lock got it for.
    version, repository, family: as far as they are known; locked: whether they are the lock's."""

    name: str
    field: Field
    version: str | None
    repository: str | None
    family: str | None
    locked: bool

    @property
    def package(self) -> str:
        """For Rule.hit: its name, if it is the lock that has it."""
        return self.name if self.locked else ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}" if self.version else self.name


@dataclass(frozen=True)
class Member:
    """A package that belongs to a well-known set, wherever it stands. known: its version, if that is known and whole.
    pin: what image.yml says of it. field: where it stands. own: whether its name is one that rules know."""

    name: str
    known: Known | None
    pin: str | None
    field: Field
    own: bool


@dataclass(frozen=True)
class Subject:
    """lock: one that fits the image, or None."""

    image: Image
    lock: Lock | None
    facts: Facts

    def family(self, name: str) -> Family | None:
        """A well-known set of `stack`."""
        return self.image.stack.families().get(name)

    def version(self, name: str) -> Known | None:
        """The version of a well-known set, in digits and dots: of the first of its packages that has one that is
        known. What `version` of the set says counts only for packages that have it."""
        return next((one.known for one in self.members(name) if one.known), None)

    def members(self, name: str) -> list[Member]:
        """The packages of a well-known set: by their names wherever they stand; and what else the set itself lists
        without a pin of its own, or with one, if it lists nothing else. Those with a known name come first."""
        own = re.compile(OWN[name])
        found: list[Member] = []
        for path, family in self.image.sets.items():
            mine = path == ("stack", name)
            for index, package in enumerate(family.packages):
                if mine or own.fullmatch(package):
                    pinned = package in family.versions
                    place: Field = (*path, "versions", package) if pinned else (*path, "version")
                    found.append(self._member(
                        name, package, family.pin(package), place, (*path, "packages", index),
                        bool(own.fullmatch(package)),
                    ))  # fmt: skip
        for index, package in enumerate(self.image.base.packages):
            if own.fullmatch(package):
                found.append(self._member(name, package, None, (), ("base", "packages", index), True))
        for package in self.lock.packages if self.lock else ():
            if own.fullmatch(package) and package not in self.named:
                found.append(self._member(name, package, None, (), (), True))
        mine_ = self.family(name)
        loose = [one for one in found if one.own or not mine_ or one.name not in mine_.versions]
        found = loose or found
        return sorted(found, key=lambda one: not one.own)

    def _member(self, name: str, package: str, pin: str | None, place: Field, field: Field, own: bool) -> Member:
        text = self._locked(package) or (release(pin) if pin else None)
        if text is None or text.count(".") < DOTS.get(name, 0):
            return Member(package, None, pin, place if pin else field, own)
        # what nothing pins stands in the lock alone
        known = Known(text, place) if pin else Known(text, field[:2] if len(field) > 3 else (), package)
        return Member(package, known, pin, place if pin else field, own)

    def pinned(self, path: tuple[str, ...], package: str) -> Known | None:
        """The version of one package of a set (Image.sets): as it is locked, or else as it is pinned, with all that
        packagers put behind it."""
        family = self.image.sets.get(path)
        pin = family.pin(package) if family else None
        own = bool(family and package in family.versions)
        field: Field = (*path, "versions", package) if own else (*path, "version")
        locked = self.lock.version(package) if self.lock else None
        if locked:
            return Known(locked, field if pin else path, "" if pin else package)
        return Known(pin, field) if pin else None

    def _locked(self, package: str) -> str | None:
        version = self.lock.version(package) if self.lock else None
        return release(version) if version else None

    @cached_property
    def named(self) -> dict[str, Named]:
        """Every package that image.yml names, by name."""
        found = {}
        for index, name in enumerate(self.image.base.packages):
            found[name] = Named(name, ("base", "packages", index), None, BASE, None, False)
        for path, family in self.image.sets.items():
            for index, name in enumerate(family.packages):
                field: Field = (*path, "packages", index)
                found[name] = Named(name, field, family.pin(name), family.repository, path[-1], False)
        return found

    @cached_property
    def packages(self) -> dict[str, Named]:
        """Every package that the image will have, as far as is known: image.yml's, and all of the lock's."""
        found = dict(self.named)
        for name, one in self.lock.packages.items() if self.lock else ():
            field: Field = self.named[name].field if name in self.named else ()
            found[name] = Named(name, field, one.version, one.repository, one.family, True)
        return found

    def matching(self, pattern: str) -> list[Named]:
        """The image's packages whose whole name matches."""
        return [one for name, one in self.packages.items() if re.fullmatch(pattern, name)]

    def environments(self) -> Iterator[tuple[str, Environment]]:
        yield from self.image.python.items()


def release(version: str) -> str | None:
    """The digits and dots that a version starts with: `1:550.144.03-0ubuntu1` → `550.144.03`; `2.22.3-1-1` → `2.22.3`;
    `2.21.5-1+cuda12.5` → `2.21.5`. None of one that starts otherwise, or has a number of more than 18 digits: it is
    none that rules can judge."""
    match = re.match(r"[0-9]+(\.[0-9]+)*", upstream(version))
    return match.group() if match and all(len(part) <= 18 for part in match.group().split(".")) else None


def older(one: str, other: str) -> bool:
    """Whether a version of digits and dots comes before another, in dpkg's order: 550.54.14 before 550.144.03."""
    return _numbers(one) < _numbers(other)


def _numbers(version: str) -> list[tuple[int, str]]:
    """Compared by length first, for Python reads no number of thousands of digits."""
    parts = [part.lstrip("0") for part in re.findall(r"[0-9]+", version)]
    return [(len(part), part) for part in parts]


def branch(driver: str) -> int:
    """550.144.03 → 550; 0 of what isn't a driver's version."""
    match = re.match(r"[0-9]{1,9}(?![0-9])", driver)
    return int(match.group()) if match else 0
