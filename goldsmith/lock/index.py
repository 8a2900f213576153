"""The packages that the repositories offer, read from the index files that apt has fetched and verified.

Facts: deb822 Packages and Release files (Debian repository format); apt-get indextargets (apt-get(8)) says which
file is whose. Reading 60 MB takes about a second: fields are found, not parsed.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

from goldsmith.errors import GoldsmithError
from goldsmith.lock.version import sort_key
from goldsmith.model.image import BASE


@dataclass(frozen=True)
class Release:
    """One suite's signed release file. origin: as apt names it in a simulation, `Debian:13.2/stable`; repository: the
    image's name for where it is, `base` for the distribution's own."""

    suite: str
    origin: str
    date: datetime
    sha256: str
    repository: str = BASE


@dataclass(frozen=True, slots=True)
class Candidate:
    """One package version of one suite. filename: below the suite's URI. size: bytes of the deb."""

    name: str
    version: str
    architecture: str
    source: str
    source_version: str
    filename: str
    size: int
    sha256: str
    essential: bool
    provides: str
    suite: str
    origin: str
    repository: str = BASE
    depends: str = ""


class Index:
    """Every candidate, by name."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self.by_name: dict[str, list[Candidate]] = defaultdict(list)
        for one in candidates:
            self.by_name[one.name].append(one)

    def versions(self, name: str) -> list[Candidate]:
        """All candidates of a package, the highest version first."""
        return sorted(self.by_name.get(name, ()), key=lambda one: sort_key(one.version), reverse=True)

    def find(self, name: str, version: str, origin: str) -> Candidate:
        """The candidate that apt chose; of several suites that have it the one named by `origin`.

        Where a release file has no suite, apt puts the host's name there: ours ends with the colon then.
        """
        found = [one for one in self.by_name.get(name, ()) if one.version == version]
        if not found:
            raise GoldsmithError(f"apt chose {name} {version}, which no index has", where="resolving packages")
        named = [one for one in found if one.origin == origin]
        bare = [one for one in found if one.origin.endswith(":") and origin.startswith(one.origin)]
        return [*named, *bare, *found][0]

    def of_source(self, source: str, version: str) -> Iterator[Candidate]:
        """All binary packages of one source version."""
        for group in self.by_name.values():
            yield from (one for one in group if one.source == source and one.source_version == version)

    def essential(self) -> list[str]:
        return sorted(name for name, group in self.by_name.items() if any(one.essential for one in group))

    def providers(self, name: str) -> list[str]:
        """Real packages that provide a virtual one."""
        pattern = re.compile(rf"(^|[ ,]){re.escape(name)}($|[ ,(])")
        return sorted({one.name for group in self.by_name.values() for one in group if pattern.search(one.provides)})

    def nearest(self, name: str) -> list[str]:
        """Names like it, for an error."""
        near = difflib.get_close_matches(name, self.by_name, n=4, cutoff=0.75)
        longer = sorted(one for one in self.by_name if one.startswith(name))[:4]
        return list(dict.fromkeys([*near, *longer]))[:5]


def read_release(text: str, suite: str, sha256: str, repository: str = BASE) -> Release:
    """The head of an InRelease or Release file; its lists of hashes are apt's business."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        match = re.match(r"([A-Za-z-]+):\s*(.*)", line)
        if match:
            fields.setdefault(match[1], match[2].strip())
        if match and match[1] in ("MD5Sum", "SHA256"):
            break
    try:
        date = parsedate_to_datetime(fields["Date"])
    except (KeyError, ValueError):
        raise GoldsmithError("its release file has no date", where=f"suite {suite}") from None
    version = f"{fields['Version']}/" if fields.get("Version") else ""
    return Release(suite, f"{fields.get('Label', '')}:{version}{fields.get('Suite', '')}", date, sha256, repository)


def read_packages(text: str, release: Release) -> Iterator[Candidate]:
    """The candidates of a Packages file."""
    for stanza in text.split("\n\n"):
        # a leading newline makes every field findable by "\nName: "
        block = f"\n{stanza}\n"
        name = _field(block, "Package")
        if not name:
            continue
        version = _field(block, "Version")
        source, source_version = split_source(_field(block, "Source"), name, version)
        yield Candidate(
            name,
            version,
            _field(block, "Architecture"),
            source,
            source_version,
            _field(block, "Filename").removeprefix("./"),
            int(_field(block, "Size") or 0),
            _field(block, "SHA256"),
            "\nEssential: yes\n" in block,
            _field(block, "Provides"),
            release.suite,
            release.origin,
            release.repository,
            ", ".join(filter(None, (_field(block, "Pre-Depends"), _field(block, "Depends")))),
        )


def read_stanzas(text: str) -> Iterator[dict[str, str]]:
    """Every paragraph's one-line fields."""
    for stanza in re.split(r"\n{2,}", text.strip()):
        yield dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", stanza, re.MULTILINE))


def _field(block: str, name: str) -> str:
    start = block.find(f"\n{name}: ")
    if start < 0:
        return ""
    start += len(name) + 3
    return block[start : block.index("\n", start)]


def split_source(field: str, package: str, version: str) -> tuple[str, str]:
    """Source name and version: `nccl (2.22.3-1)` where they differ from the binary's, else the binary's own."""
    match = re.match(r"(\S+)(?:\s+\(([^)]+)\))?", field)
    if not match:
        return package, version
    return match[1], match[2] or version


def newest(releases: Iterable[Release]) -> str:
    """The newest date of the suites, ISO 8601 in UTC: the lock's own, for it doesn't move until they do."""
    return max(one.date for one in releases).strftime("%Y-%m-%dT%H:%M:%SZ")
