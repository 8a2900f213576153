"""Which packages stay as an earlier lock has them when an image is resolved anew: all that nothing forces to move.

apt takes a pinned version or fails; it never gives a pin up. So what stands in the way is set free, package by
package with its source's others, and apt is asked again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from goldsmith.lock.index import Index
from goldsmith.model.lock import Lock


@dataclass(frozen=True)
class Keep:
    """versions: package → the version to stay at."""

    versions: Mapping[str, str]

    def offered(self, index: Index) -> Keep:
        """Without the versions that no repository has any more: those packages have to move."""
        return Keep({
            name: version for name, version in self.versions.items()
            if any(one.version == version for one in index.by_name.get(name, ()))
        })  # fmt: skip

    def freed_by(self, reason: str, index: Index) -> Keep:
        """Without the packages that apt names in its reason for a refusal, and those of the same sources."""
        named = {name for name in _names(reason) if name in self.versions}
        sources = {one.source for name in named for one in index.by_name.get(name, ())}
        gone = named | {
            name for name in self.versions if any(one.source in sources for one in index.by_name.get(name, ()))
        }
        return Keep({name: version for name, version in self.versions.items() if name not in gone})


def keeping(lock: Lock, upgrade: Collection[str]) -> Keep:
    """All of a lock's packages but those that are to move, by name or by family, and those of the same sources."""
    moving = {one.source for one in lock.packages.values() if {one.name, one.family} & set(upgrade)}
    return Keep({one.name: one.version for one in lock.packages.values() if one.source not in moving})


def _names(reason: str) -> set[str]:
    """The packages in apt's explanation: ` libfoo : Depends: libbar (>= 2) but 1.0-1 is to be installed`."""
    names = set()
    for line in reason.splitlines():
        if match := re.match(r"\s*(\S+) : ", line):
            names.add(match[1].partition(":")[0])
        names.update(re.findall(r"(?:Depends|Conflicts|Breaks|Recommends): ([a-z0-9][a-z0-9+.-]+)", line))
    return names
