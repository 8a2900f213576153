"""What a difference between a promise and a node is: the words that audit and deploy share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from goldsmith.model.finding import Severity
from goldsmith.model.probe import Probe

Kind = Literal[
    "packages",
    "holds",
    "strays",
    "pins",
    "contents",
    "files",
    "stale",
    "pending",
    "units",
    "modules",
    "sysctls",
    "parameters",
    "environments",
]

# The probe's part that each kind is read from.
PART: dict[Kind, str] = {
    "packages": "packages", "holds": "packages", "strays": "packages", "pins": "candidates",
    "contents": "package_files", "files": "files",
    "stale": "stale_files", "pending": "stale_files", "units": "units",
    "modules": "modules", "sysctls": "sysctls", "parameters": "kernel",
    "environments": "environments",
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """kind and key: which promise. expected, actual: as a person reads them. evidence: how it was seen.
    since: ISO time since which it is so, where the node knows. severity: UNKNOWN if it couldn't be read.
    live: what is stored is right and only the running system differs. role: who it belongs to, where the node says."""

    kind: Kind
    key: str
    expected: str
    actual: str
    severity: Severity = Severity.FAIL
    evidence: tuple[str, ...] = field(default=())
    since: str = ""
    live: bool = False
    role: str = ""


def unread(kind: Kind, keys: Mapping[str, Any], probe: Probe) -> Iterator[Difference]:
    """One UNKNOWN for all promises of a kind whose part of the probe failed or was never sent back."""
    part = PART[kind]
    if keys and part not in probe.facts:
        reason = probe.errors.get(part, "the probe's answer lacks it")
        yield Difference(kind, f"{len(keys)} {kind}", "readable", f"not read: {reason}", Severity.UNKNOWN)


def gap_of(kind: Kind, key: str, have: Any) -> Difference | None:
    """UNKNOWN for one promise that the probe couldn't read, or whose answer lacks it."""
    if have is not None and "error" not in have:
        return None
    reason = (have or {}).get("error", "the probe's answer lacks it")
    return Difference(kind, key, "readable", f"not read: {reason}", Severity.UNKNOWN)
