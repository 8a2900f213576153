"""From an image's folder to problems: its rules and its roles' own, each with where it stands. Reads files alone."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from goldsmith.errors import GoldsmithError
from goldsmith.lint.facts import Facts, packaged_facts
from goldsmith.lint.rules import RULES, TOPICS
from goldsmith.lint.subject import Subject
from goldsmith.model.finding import Severity, worst
from goldsmith.model.image import Image, read_placed
from goldsmith.model.lock import Lock, read_lock
from goldsmith.model.rule import Hit, Rule
from goldsmith.role import Role, find_roles, roles_of
from goldsmith.yamlfile import Places

L1 = Rule(
    "L1", Severity.WARN, "the lock fits image.yml", "goldsmith lock --check",
    "lock the image anew: until then its pins are all that can be judged",
)  # fmt: skip
LockState = Literal["used", "none", "stale"]


@dataclass(frozen=True)
class Problem:
    """A hit with its place: file, line and field of image.yml or of what it extends, or a package of the lock."""

    id: str
    severity: Severity
    where: str
    what: str
    source: str
    remedy: str

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "severity": self.severity.name}


@dataclass(frozen=True)
class Report:
    """image: the folder, as it was asked for. lock: whether versions are the lock's or image.yml's pins."""

    image: str
    lock: LockState
    facts_as_of: str
    problems: tuple[Problem, ...]

    @property
    def severity(self) -> Severity:
        return worst([one.severity for one in self.problems])


def lint_image(project: Path, directory: Path, facts: Facts | None = None) -> Report:
    """All problems of images/NAME, worst first. Raises GoldsmithError if image.yml can't be read."""
    known = facts or packaged_facts()
    image, places = read_placed(directory)
    roles = roles_of(image.roles, project, lambda n: places.of("roles", n))
    lock, state, stale = _lock(directory, image, roles)
    subject = Subject(image, lock, known)
    hits = [*stale, *chain.from_iterable(topic.lint(subject) for topic in TOPICS),
            *chain.from_iterable(role.lint(image, lock) for role in roles)]  # fmt: skip
    problems = dict.fromkeys(_problem(one, places, directory) for one in hits)
    return Report(
        str(directory), state, known.as_of.isoformat(), tuple(sorted(problems, key=lambda one: -one.severity.rank))
    )


def every_rule(project: Path) -> list[Rule]:
    """The engine's rules, then those of the project's roles."""
    return [L1, *RULES, *chain.from_iterable(role.rules() for role in find_roles(project).values())]


def severity_of(hit: Hit) -> Severity:
    """The one place where it is decided that what nobody has verified may warn, and never fail."""
    verified = hit.rule.verified and all(fact.verified for fact in hit.facts)
    return hit.severity if verified or hit.severity is not Severity.FAIL else Severity.WARN


def _problem(hit: Hit, places: Places, directory: Path) -> Problem:
    unverified = [fact.source for fact in hit.facts if not fact.verified]
    note = f" (not verified: {'; '.join(unverified) or 'inferred'})" if unverified or not hit.rule.verified else ""
    if hit.package and not (hit.field and _stands(places, hit.field)):
        where = f"{directory / 'image.lock'}, packages.{hit.package}"
    else:
        where = _tidy(places.of(*hit.field))
    said = [*(fact.source for fact in hit.facts), hit.rule.source]
    sources = dict.fromkeys(one for text in said for one in text.split("; "))
    return Problem(hit.rule.id, severity_of(hit), where, hit.what + note, "; ".join(sources), hit.remedy)


def _stands(places: Places, field: tuple[str | int, ...]) -> bool:
    """Whether image.yml has more of a field than the topic it belongs to: then that is what has to be changed."""
    return len(field) > 2 and places.of(*field) != places.of(*field[:1])


def _tidy(where: str) -> str:
    """`images/x/../common/image.yml:3, name` → `images/common/image.yml:3, name`."""
    match = re.match(r"(?P<path>.*?)(?P<rest>:\d+, .*)", where, re.DOTALL)
    return f"{os.path.normpath(match['path'])}{match['rest']}" if match else where


def _lock(directory: Path, image: Image, roles: list[Role]) -> tuple[Lock | None, LockState, list[Hit]]:
    """The lock if it was made of this image.yml; a hit if there is one that wasn't."""
    from goldsmith.lock.locking import lock_fits

    path = directory / "image.lock"
    if not path.is_file():
        return None, "none", []
    try:
        lock = read_lock(directory)
    except GoldsmithError as error:
        return None, "stale", [L1.hit(f"the lock {path} can't be used: {error.what}")]
    if lock_fits(image, lock, roles):
        return lock, "used", []
    return None, "stale", [L1.hit(f"the lock {path} is stale: it was made of another image.yml, or of other roles")]
