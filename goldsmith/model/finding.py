"""A finding: one fact of one node that is not as it should be, or that could not be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Severity(IntEnum):
    """The Nagios contract; the value is the exit code. Use `worst`, never max(): FAIL is worse than UNKNOWN."""

    OK = 0
    WARN = 1
    FAIL = 2
    UNKNOWN = 3

    @property
    def rank(self) -> int:
        """Higher is worse: FAIL, UNKNOWN, WARN, OK. A node that can't be read doesn't hide one that failed."""
        return (0, 1, 3, 2)[self]


def worst(severities: list[Severity]) -> Severity:
    """The severity of the whole, OK of an empty list."""
    return max(severities, key=lambda one: one.rank, default=Severity.OK)


@dataclass(frozen=True)
class Finding:
    """node:     whose fact it is.
    check:    stable id, ROLE.WHAT, e.g. `nvidia_driver.module-matches-library`.
    fact:     what was looked at, e.g. `/etc/nccl.conf` or `python3-torch`.
    expected, actual: both as a person reads them; the two stand on one line of the report.
    source:   where `expected` comes from, e.g. `images/lab/image.lock`.
    evidence: how it was seen and since when, one line each.
    remedy:   what to do, a command where there is one. `{nodes}` becomes the folded node set, `{site}` the site.
    since:    ISO time (UTC) since which the fact is so, where the node knows it.
    """

    node: str
    check: str
    severity: Severity
    fact: str
    expected: str = ""
    actual: str = ""
    source: str = ""
    evidence: tuple[str, ...] = field(default=())
    remedy: str = ""
    since: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node, "check": self.check, "severity": self.severity.name, "fact": self.fact,
            "expected": self.expected, "actual": self.actual, "source": self.source,
            "evidence": list(self.evidence), "remedy": self.remedy.replace("{nodes}", self.node), "since": self.since,
        }  # fmt: skip
