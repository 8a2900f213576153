"""Core part: which version apt would install of each pinned package. Shipped to nodes: Python 3.8, stdlib only.

Apt itself is asked, not the file that pins: a pin in the wrong place was silently off (Azure/azhpc-images#546). And it
is tempted with a version above all others, since a pin that is off shows only on the day when a repository gains a
higher one (aws/aws-parallelcluster#3034).
"""

from __future__ import annotations

import os
import re
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goldsmith.probe.node.run import Run

HIGHER = "9999:goldsmith-asks"
STANZA = """\
Package: {name}
Source: {source}
Version: {version}
Architecture: {arch}
Maintainer: nobody <nobody@example.invalid>
Filename: ./nothing.deb
Size: 1
SHA256: {sha256}
Description: asked by the probe, installed by nobody

"""


def candidate_facts(run: Run) -> dict[str, Any]:
    """name → candidate (`higher` for the version that only we offer, None for none), priority (of the locked version,
    None where apt knows no such version). Of the packages in want's `pinned`: name → [version, source]."""
    pinned = run.want.get("pinned") or {}
    if not pinned:
        return {}
    arch = run(["dpkg", "--print-architecture"]).out.strip()
    # in memory, where the node lets us: a part that is killed leaves it
    memory = run.path("/run")
    with tempfile.TemporaryDirectory(
        prefix="goldsmith-probe-", dir=memory if os.access(memory, os.W_OK) else None
    ) as folder:
        path = os.path.join(folder, "Packages")
        with open(path, "w") as file:
            for name, (_, source) in sorted(pinned.items()):
                file.write(STANZA.format(name=name, source=source or name, version=HIGHER, arch=arch, sha256="0" * 64))
        # no cache is written: a probe changes nothing
        asked = run(
            ["apt-cache", "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "--with-source", path,
             "policy", *sorted(pinned)],
            timeout=4.5,
        )  # fmt: skip
    if asked.code != 0:
        raise RuntimeError(asked.err.strip() or f"apt-cache policy: exit code {asked.code}")
    told = policies(asked.out)
    return {
        name: {"candidate": candidate(told[name][0]), "priority": told[name][1].get(version)}
        for name, (version, _) in pinned.items()
        if name in told
    }


def candidate(version: str) -> str | None:
    """As facts have it."""
    return {"(none)": None, HIGHER: "higher"}.get(version, version)


def policies(text: str) -> dict[str, tuple[str, dict[str, int]]]:
    """name → its candidate, and version → priority, of `apt-cache policy NAME …`."""
    found: dict[str, tuple[str, dict[str, int]]] = {}
    name = ""
    for line in text.splitlines():
        head = re.match(r"(\S+):$", line)
        if head:
            name = head.group(1)
        chosen = re.match(r"  Candidate: (\S+)", line)
        if chosen:
            found[name] = (chosen.group(1), {})
        version = re.match(r" (?:\*\*\*|   ) (\S+) (-?\d+)$", line)
        if version and name in found:
            found[name][1][version.group(1)] = int(version.group(2))
    return found
