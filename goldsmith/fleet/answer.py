"""What asking a node comes to: its probe, or the reason there is none."""

from __future__ import annotations

from dataclasses import dataclass

from goldsmith.model.probe import Probe


@dataclass(frozen=True)
class Answer:
    """One of the two is set. reason: one line, as a person reads it ("can't be reached: connection refused")."""

    node: str
    probe: Probe | None = None
    reason: str = ""
    remedy: str = ""
