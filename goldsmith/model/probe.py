"""A probe: what a node said of itself, in JSON, schema 1."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from goldsmith.errors import GoldsmithError

SCHEMA = 1


@dataclass(frozen=True)
class Probe:
    """node: the inventory's name of who was asked, whatever host name it answered with.
    facts: part → what it found. errors: part → why it couldn't."""

    node: str
    hostname: str
    started: str
    seconds: float
    root: bool
    container: bool
    target: str
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict)

    def part(self, name: str) -> Mapping[str, Any]:
        """The part's facts, empty if it failed or wasn't asked."""
        return self.facts.get(name, {})


def parse_probe(node: str, text: str) -> Probe:
    """The probe in a program's output: its last line. Raises GoldsmithError for anything that isn't one.

    A login message or a library that prints may stand before it; rubbish instead of it is named, shortened.
    """
    lines = text.strip().splitlines()
    where = f"node {node}"
    if not lines:
        raise GoldsmithError("the probe answered nothing", where=where)
    try:
        data = json.loads(lines[-1])
    except (ValueError, RecursionError):
        raise GoldsmithError(f"the probe's answer isn't JSON: {lines[-1][:80]!r}", where=where) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise GoldsmithError(f"the probe's answer has schema {found!r}, not {SCHEMA}", where=where)
    if data.get("error"):
        raise GoldsmithError(f"the probe failed: {data['error']}", where=where)
    facts: dict[str, Mapping[str, Any]] = {}
    errors: dict[str, str] = {}
    parts = data.get("parts")
    if not isinstance(parts, dict):
        raise GoldsmithError("the probe's answer has no parts", where=where)
    for name, part in parts.items():
        found = part.get("facts") if isinstance(part, dict) else None
        if isinstance(found, list):
            facts[name] = {"items": found}
        elif isinstance(found, dict):
            facts[name] = found
        else:
            errors[name] = str(part.get("error", "no facts") if isinstance(part, dict) else part)
    try:
        return Probe(
            node=node,
            hostname=str(data.get("node", "")),
            started=str(data.get("started", "")),
            seconds=float(data.get("seconds", 0.0)),
            root=bool(data.get("root", False)),
            container=bool(data.get("container", False)),
            target=str(data.get("target", "live")),
            facts=facts,
            errors=errors,
            raw=data,
        )
    except (TypeError, ValueError) as error:
        raise GoldsmithError(f"the probe's answer is malformed: {error}", where=where) from None
