"""What an artifact holds, as its SBOMs list it: every Debian package and wheel of its manifest, and nothing else.

Made of the manifest alone, which was read back from the tree, so that `verify` can say whether the two agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from packageurl import PackageURL

# Of nobody else's serial numbers; made once, for this.
_NAMESPACE = UUID("6d3f7c2e-5b0a-4d0c-9a53-6f1f3a0d9c41")


@dataclass(frozen=True)
class Entry:
    """One package or wheel. ref: its own in the SBOM; a wheel may be in two environments. purl:
    github.com/package-url/purl-spec, types deb and pypi. sha256: of the deb or the wheel; empty where no lock has it.
    """

    ref: str
    purl: str
    name: str
    version: str
    sha256: str
    properties: tuple[tuple[str, str], ...] = ()


def entries(manifest: Mapping[str, Any]) -> Iterator[Entry]:
    """What the SBOM of an artifact with this manifest must list, in one order however the manifest was read."""
    base = manifest["base"]
    for name, one in sorted(manifest["packages"].items()):
        qualifiers = {"arch": one["architecture"], "distro": base["release"]}
        purl = PackageURL("deb", base["distribution"], name, one["version"], qualifiers).to_string()
        told = (("goldsmith:repository", one["repository"]), ("goldsmith:source", one["source"]))
        yield Entry(purl, purl, name, one["version"], one["sha256"], told)
    for environment, projects in sorted(manifest["environments"].items()):
        for name, one in sorted(projects.items()):
            purl = PackageURL("pypi", None, name, one["version"]).to_string()
            where = (("goldsmith:environment", environment),)
            yield Entry(f"{environment}/{purl}", purl, name, one["version"], one["sha256"], where)


def serial(manifest: Mapping[str, Any]) -> UUID:
    """Of an SBOM of this image: not random, so that two builds have one."""
    return uuid5(_NAMESPACE, f"{manifest['image']} {manifest['tree']['sha256']}")
