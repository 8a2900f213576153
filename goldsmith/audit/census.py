"""Census: who differs from whom, with no lock at hand. And the fingerprint that says two nodes are the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from goldsmith.inventory.site import fold
from goldsmith.model.finding import Finding, Severity
from goldsmith.model.probe import Probe

# What rightly differs between two nodes that are the same: names, times, and what is the node's own.
_OWN = frozenset({"hostname", "boot_id", "uptime_s", "mtime", "ctime", "since", "started", "seconds", "inode"})
# How a unit came to its state: a timer that was stopped and then masked has a history, but is the same as one that
# never ran. Whether it is active counts.
_HISTORY = {"units": frozenset({"sub", "result", "condition"})}


def facts_of(probe: Probe) -> dict[str, str]:
    """path → value of everything that two nodes of one image should have in common."""
    found: dict[str, str] = {}
    for part, facts in probe.facts.items():
        for path, value in _flatten(facts, (part,)):
            if not (_OWN | _HISTORY.get(part, frozenset())) & set(path):
                found[" ".join(path)] = value
    return found


def _flatten(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flatten(item, (*path, str(key)))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value):
            yield from _flatten(item, (*path, _name(item, number)))
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _name(item: Any, number: int) -> str:
    """What a list's item is called: by what it says of itself, so that one more item doesn't shift the others."""
    for key in ("path", "file", "name"):
        if isinstance(item, Mapping) and isinstance(item.get(key), str):
            return str(item[key])
    return str(number)


def fingerprint(probe: Probe) -> str:
    """Twelve hex digits; the same for two nodes exactly if all their comparable facts are the same."""
    text = json.dumps(facts_of(probe), sort_keys=True)
    return sha256(text.encode()).hexdigest()[:12]


def census(probes: Iterable[Probe], judged: Collection[str] = (), most: int = 20) -> list[Finding]:
    """Findings about facts in which nodes differ from the majority.

    judged: beginnings of facts that were compared with a promise already (`packages libnccl2`, `role.nccl`).
    most: how many facts at most; a node of another distribution differs in thousands.
    Fewer than three nodes have no majority: then each group is named, and none is called the odd one.
    """
    probes = list(probes)
    if len(probes) < 2:
        return []
    all_facts = {probe.node: facts_of(probe) for probe in probes}
    done = {f"{one} " for one in judged}
    paths = sorted({path for facts in all_facts.values() for path in facts})
    findings: list[Finding] = []
    for path in paths:
        values = {node: facts.get(path, "absent") for node, facts in all_facts.items()}
        counts = Counter(values.values())
        if len(counts) == 1 or _judged(path, done):
            continue
        if most == 0:
            break
        most -= 1
        common, number = counts.most_common(1)[0]
        split = number * 2 <= len(probes)
        for node, value in values.items():
            if value == common and not split:
                continue
            expected = "all the same" if split else f"{_short(common)} (as on {number} of {len(probes)} nodes)"
            findings.append(
                Finding(
                    node, "goldsmith.census", Severity.WARN, path, expected, _short(value),
                    source=f"the other nodes: {fold(one for one, seen in values.items() if seen == common)}",
                    remedy="the lock doesn't say which is right; if it should, let a role promise it",
                )
            )  # fmt: skip
    return findings


def _judged(path: str, done: Collection[str]) -> bool:
    """Whether the fact, or something that it is part of, is among `done` (each ends in a space)."""
    words = f"{path} ".split(" ")
    return any(" ".join(words[:number]) + " " in done for number in range(1, len(words)))


def _short(value: str, most: int = 60) -> str:
    return value if len(value) <= most else f"{value[: most - 1]}…"
