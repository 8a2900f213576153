"""sbom.cdx.json: CycloneDX 1.6, by the project's own library. No random serial number and no time of day in it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from packageurl import PackageURL

from goldsmith.image.components import Entry, entries, serial


def text(manifest: Mapping[str, Any]) -> str:
    """The document of an artifact with this manifest."""
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
        serial_number=serial(manifest),
        metadata=BomMetaData(component=image, timestamp=created),
    )
    bom.register_dependency(image, components)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def listed(document: Mapping[str, Any]) -> list[Entry]:
    """What a document lists, without properties. Raises ValueError, KeyError, TypeError or AttributeError."""
    if document["bomFormat"] != "CycloneDX":
        raise ValueError(document["bomFormat"])
    return [
        Entry(str(one["bom-ref"]), str(one["purl"]), str(one["name"]), str(one["version"]), _digest(one))
        for one in document.get("components", [])
    ]


def _digest(component: Mapping[str, Any]) -> str:
    return next((str(one["content"]) for one in component.get("hashes", []) if one["alg"] == "SHA-256"), "")
