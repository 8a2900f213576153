"""Telling the same thing once: findings that differ only in the node, folded to a node set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from goldsmith.inventory.site import fold
from goldsmith.model.finding import Finding, Severity


@dataclass(frozen=True)
class Folded:
    """One thing to say about some nodes. evidence is the first node's, where they differ; since is the range."""

    nodes: tuple[str, ...]
    example: Finding
    since: str
    evidence: tuple[str, ...]

    @property
    def nodeset(self) -> str:
        return fold(self.nodes)

    @property
    def severity(self) -> Severity:
        return self.example.severity

    @property
    def remedy(self) -> str:
        # not str.format: a remedy may hold braces of its own
        return self.example.remedy.replace("{nodes}", self.nodeset)


def fold_findings(findings: Iterable[Finding]) -> list[Folded]:
    """Same check, fact, expected, actual and severity: one line. Worst first, then the most nodes."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for one in findings:
        key = (one.severity.name, one.check, one.fact, one.expected, one.actual, one.remedy)
        groups.setdefault(key, []).append(one)
    folded = [
        Folded(tuple(one.node for one in group), group[0], _range(group), _evidence(group)) for group in groups.values()
    ]
    return sorted(folded, key=lambda one: (-one.severity.rank, -len(one.nodes), one.example.check, one.example.fact))


def _range(group: list[Finding]) -> str:
    times = sorted({one.since for one in group if one.since})
    return times[0] if len(times) == 1 else f"{times[0]} … {times[-1]}" if times else ""


def _evidence(group: list[Finding]) -> tuple[str, ...]:
    if len({one.evidence for one in group}) == 1:
        return group[0].evidence
    return (*group[0].evidence, f"(as seen on {group[0].node})") if group[0].evidence else ()
