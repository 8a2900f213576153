"""An image as rules see it: its packages and their versions, from the lock where there is one, else from image.yml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from goldsmith.lint.facts import Facts
from goldsmith.lock.version import sort_key
from goldsmith.model.image import BASE, Image
from goldsmith.model.lock import Lock, upstream
from goldsmith.model.stack import Environment, Family

Field = tuple[str | int, ...]


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
class Subject:
    """lock: one that fits the image, or None."""

    image: Image
    lock: Lock | None
    facts: Facts

    def family(self, name: str) -> Family | None:
        """A well-known set of `stack`."""
        return self.image.stack.families().get(name)

    def version(self, name: str) -> Known | None:
        """The one version of a well-known set, in digits and dots; of its packages without a pin of their own."""
        family = self.family(name)
        if family is None:
            return None
        if family.version:
            # the lock satisfies it, and may be more exact: 550 for 550.144.03
            exact = next((self._locked(one) for one in family.packages if one not in family.versions), None)
            text = exact or release(family.version)
            return Known(text, ("stack", name, "version")) if text else None
        for package in family.packages:
            pin, locked = family.versions.get(package), self._locked(package)
            if text := locked or (release(pin) if pin else None):
                field: Field = ("stack", name, "versions", package) if pin else ("stack", name)
                return Known(text, field, "" if pin else package)
        return None

    def pinned(self, name: str, package: str) -> Known | None:
        """The version of one package of a well-known set: as it is locked, or else as it is pinned, with all that
        packagers put behind it."""
        family = self.family(name)
        pin = family.pin(package) if family else None
        own = bool(family and package in family.versions)
        field: Field = ("stack", name, "versions", package) if own else ("stack", name, "version")
        locked = self.lock.version(package) if self.lock else None
        if locked:
            return Known(locked, field if pin else ("stack", name), "" if pin else package)
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
    `2.21.5-1+cuda12.5` → `2.21.5`. None of one that starts otherwise: it is none that rules can judge."""
    match = re.match(r"[0-9]+(\.[0-9]+)*", upstream(version))
    return match.group() if match else None


def older(one: str, other: str) -> bool:
    """Whether a version comes before another, in dpkg's order: 550.54.14 before 550.144.03."""
    return sort_key(one) < sort_key(other)


def branch(driver: str) -> int:
    """550.144.03 → 550; 0 of what isn't a driver's version."""
    match = re.match(r"[0-9]+", driver)
    return int(match.group()) if match else 0
