"""The SBOM of an artifact, CycloneDX 1.6: every Debian package and wheel of its manifest, and nothing else.

Made of the manifest alone, which was read back from the tree, so that `verify` can say whether the two agree. No
random serial number and no time of day: the serial is derived from the tree, the time is the lock's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from packageurl import PackageURL

from goldsmith.errors import GoldsmithError

SBOM = "sbom.cdx.json"
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
    """What the SBOM of an artifact with this manifest must list."""
    base = manifest["base"]
    for name, one in manifest["packages"].items():
        qualifiers = {"arch": one["architecture"], "distro": base["release"]}
        purl = PackageURL("deb", base["distribution"], name, one["version"], qualifiers).to_string()
        told = (("goldsmith:repository", one["repository"]), ("goldsmith:source", one["source"]))
        yield Entry(purl, purl, name, one["version"], one["sha256"], told)
    for environment, projects in manifest["environments"].items():
        for name, one in projects.items():
            purl = PackageURL("pypi", None, name, one["version"]).to_string()
            where = (("goldsmith:environment", environment),)
            yield Entry(f"{environment}/{purl}", purl, name, one["version"], one["sha256"], where)


def text(manifest: Mapping[str, Any]) -> str:
    """The SBOM's JSON."""
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.output.json import JsonV1Dot6

    components = [
        Component(
            name=one.name,
            version=one.version,
            type=ComponentType.LIBRARY,
            bom_ref=one.ref,
            purl=PackageURL.from_string(one.purl),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one.sha256)] if one.sha256 else [],
            properties=[Property(name=name, value=value) for name, value in one.properties],
        )
        for one in entries(manifest)
    ]
    tree = manifest["tree"]["sha256"]
    image = Component(
        name=manifest["image"],
        version=manifest["lock"]["digest"],
        type=ComponentType.OPERATING_SYSTEM,
        bom_ref=f"image:{manifest['image']}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=tree)],
    )
    created = datetime.fromisoformat(manifest["created"]).astimezone(UTC)
    bom = Bom(
        components=components,
        serial_number=uuid5(_NAMESPACE, f"{manifest['image']} {tree}"),
        metadata=BomMetaData(component=image, timestamp=created),
    )
    bom.register_dependency(image, components)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def differences(content: bytes, manifest: Mapping[str, Any]) -> list[str]:
    """Where an SBOM lists something else than the manifest, one sentence each. Raises GoldsmithError if it is none."""
    try:
        data = json.loads(content)
        if data["bomFormat"] != "CycloneDX":
            raise ValueError(data["bomFormat"])
        listed = [(str(one["bom-ref"]), _facts(one)) for one in data.get("components", [])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise GoldsmithError(f"not a CycloneDX document: {error!r}", where=SBOM) from None
    expected = {one.ref: (one.purl, one.name, one.version, one.sha256) for one in entries(manifest)}
    found = dict(listed)
    twice = Counter(ref for ref, _ in listed)
    return [
        *(f"{ref} is listed twice" for ref, count in sorted(twice.items()) if count > 1),
        *(f"{ref} is in the manifest and not in the SBOM" for ref in sorted(expected.keys() - found.keys())),
        *(f"{ref} is in the SBOM and not in the manifest" for ref in sorted(found.keys() - expected.keys())),
        *(
            f"{ref} is another one in the SBOM: {', '.join(found[ref])}"
            for ref in sorted(found.keys() & expected.keys())
            if found[ref] != expected[ref]
        ),
    ]


def _facts(component: Mapping[str, Any]) -> tuple[str, str, str, str]:
    digest = next((str(one["content"]) for one in component.get("hashes", []) if one["alg"] == "SHA-256"), "")
    return str(component["purl"]), str(component["name"]), str(component["version"]), digest
