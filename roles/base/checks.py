"""Is our pool the only source, and is the clock right?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from goldsmith import Finding, Lock, Node, Severity

OURS = "/etc/apt/sources.list.d/goldsmith.sources"


def check(node: Node, lock: Lock, facts: Mapping[str, Any]) -> Iterator[Finding]:
    for path in sorted({source["file"] for source in facts["sources"]} - {OURS}):
        here = [source for source in facts["sources"] if source["file"] == path]
        yield Finding(
            node=node.name, check="base.foreign-source", severity=Severity.WARN, fact=path,
            expected="no other apt source than the pool",
            actual=", ".join(sorted({uri for source in here for uri in source["uris"]})),
            source=OURS,
            evidence=tuple(f"{' '.join(one['types'])}: {' '.join(one['suites'])}" for one in here),
            remedy=f"remove {path}; a package that it is for goes into images/{lock.image}/image.yml",
        )  # fmt: skip
    yield from _clock(node, facts["clock"])


def _clock(node: Node, clock: Mapping[str, Any]) -> Iterator[Finding]:
    if not clock["applicable"]:
        return
    if "error" in clock:
        yield Finding(
            node=node.name, check="base.time-synchronised", severity=Severity.UNKNOWN, fact="chrony",
            expected="synchronised", actual="no answer", evidence=(f"chronyc tracking: {clock['error']}",),
            remedy="on {nodes}: systemctl status chrony",
        )  # fmt: skip
    elif not clock["synchronised"]:
        yield Finding(
            node=node.name, check="base.time-synchronised", severity=Severity.WARN, fact="chrony",
            expected="synchronised", actual="not synchronised",
            evidence=(f"chronyc tracking: source {clock['source'] or 'none'}, stratum {clock['stratum']}",),
            remedy="on {nodes}: chronyc sources; set a time server that the node reaches",
        )  # fmt: skip
