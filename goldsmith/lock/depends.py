"""Why a package is there that nobody asked for: the package nearest to one that somebody asked for which needs it.

Facts: Debian policy 7.1 (the syntax of Depends), 7.5 (Provides).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from goldsmith.lock.index import Candidate


def needed_by(candidates: Mapping[str, Candidate], asked: Iterable[str]) -> dict[str, str]:
    """package → the one that needs it, of all that aren't asked for. Found breadth first in alphabetical order, so
    that the same packages always give the same answer."""
    providers: dict[str, list[str]] = {}
    for name, one in sorted(candidates.items()):
        for virtual in names(one.provides):
            providers.setdefault(virtual, []).append(name)
    found: dict[str, str] = {}
    seen = set(asked)
    layer = sorted(name for name in seen if name in candidates)
    while layer:
        following = []
        for name in layer:
            for wanted in names(candidates[name].depends):
                for real in [wanted] if wanted in candidates else providers.get(wanted, []):
                    if real not in seen:
                        seen.add(real)
                        found[real] = name
                        following.append(real)
        layer = sorted(following)
    # what apt took for a reason that isn't a dependency: it says so itself
    return {**dict.fromkeys(candidates, "apt's own choice"), **found}


def names(field: str) -> list[str]:
    """The package names of a dependency field, alternatives included: `a (>= 1), b | c:any` → a, b, c."""
    return [
        match[1] for clause in re.split(r"[,|]", field) if (match := re.match(r"\s*([a-z0-9][a-z0-9+.-]+)", clause))
    ]
