"""A rule of `goldsmith lint`, and a hit: what it found in an image, before anything is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from goldsmith.model.finding import Severity


class Basis(Protocol):
    """A fact that a hit rests on. verified: somebody has seen it, or its vendor says so; not hearsay."""

    @property
    def source(self) -> str: ...

    @property
    def verified(self) -> bool: ...


@dataclass(frozen=True)
class Rule:
    """id: stable. severity: of a hit, unless that says otherwise. text: what must hold, one sentence.
    source: who says so, or whom it broke. remedy: what to do. verified: false for what was only inferred."""

    id: str
    severity: Severity
    text: str
    source: str
    remedy: str
    verified: bool = True

    def hit(
        self,
        what: str,
        *field: str | int,
        package: str = "",
        facts: tuple[Basis, ...] = (),
        severity: Severity | None = None,
        remedy: str = "",
    ) -> Hit:
        """what: what was found, both sides of it by name and version. field: of image.yml. package: of the lock,
        for what image.yml doesn't say. facts: what it rests on, their sources are told."""
        return Hit(
            self, what, field, package, facts, self.severity if severity is None else severity, remedy or self.remedy
        )


@dataclass(frozen=True)
class Hit:
    rule: Rule
    what: str
    field: tuple[str | int, ...]
    package: str
    facts: tuple[Basis, ...]
    severity: Severity
    remedy: str
