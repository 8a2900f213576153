"""sbom.spdx.json: SPDX 2.3 as JSON (spdx.github.io/spdx-spec/v2.3), for who takes no CycloneDX.

Written here: it is one flat document, and spdx-tools 0.8, which writes it too, brings rdflib and eight more packages.
tests/unit/test_image_sbom.py has the fields that its validator asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from goldsmith.image.components import Entry, entries, serial

_UNKNOWN = "NOASSERTION"
_IMAGE = "SPDXRef-image"


def text(manifest: Mapping[str, Any]) -> str:
    """The document of an artifact with this manifest."""
    name = manifest["image"]
    image = {
        **_package(_IMAGE, name, manifest["lock"]["digest"], manifest["tree"]["sha256"]),
        "primaryPackagePurpose": "OPERATING-SYSTEM",
    }
    components = [_component(one) for one in entries(manifest)]
    described = {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": _IMAGE}
    contained = [
        {"spdxElementId": _IMAGE, "relationshipType": "CONTAINS", "relatedSpdxElement": one["SPDXID"]}
        for one in components
    ]
    created = datetime.fromisoformat(manifest["created"]).astimezone(UTC)
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": serial(manifest).urn,
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: goldsmith"]},
        "packages": [image, *components],
        "relationships": [described, *contained],
    }
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def listed(document: Mapping[str, Any]) -> list[Entry]:
    """What a document lists, without properties. Raises ValueError, KeyError, TypeError or AttributeError."""
    if document["spdxVersion"] != "SPDX-2.3":
        raise ValueError(document["spdxVersion"])
    packages = [one for one in document["packages"] if one["SPDXID"] != _IMAGE]
    return [
        Entry(str(one["comment"]), _purl(one), str(one["name"]), str(one["versionInfo"]), _digest(one))
        for one in packages
    ]


def _component(one: Entry) -> dict[str, Any]:
    # an id has letters, digits, dots and dashes alone; its own digest tells libstdc++6 from libstdc--6
    plain = re.sub(r"[^A-Za-z0-9.-]", "-", one.name)
    identity = f"SPDXRef-{plain}-{sha256(one.ref.encode()).hexdigest()[:12]}"
    where = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": one.purl}
    source = "; ".join(f"{name.removeprefix('goldsmith:')} {value}" for name, value in one.properties)
    return {
        **_package(identity, one.name, one.version, one.sha256),
        "externalRefs": [where],
        "sourceInfo": source,
        "comment": one.ref,
    }


def _package(identity: str, name: str, version: str, digest: str) -> dict[str, Any]:
    return {
        "SPDXID": identity,
        "name": name,
        "versionInfo": version,
        "downloadLocation": _UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": _UNKNOWN,
        "licenseDeclared": _UNKNOWN,
        "copyrightText": _UNKNOWN,
        "checksums": [{"algorithm": "SHA256", "checksumValue": digest}] if digest else [],
    }


def _purl(package: Mapping[str, Any]) -> str:
    return next(str(one["referenceLocator"]) for one in package["externalRefs"] if one["referenceType"] == "purl")


def _digest(package: Mapping[str, Any]) -> str:
    return next((str(one["checksumValue"]) for one in package["checksums"] if one["algorithm"] == "SHA256"), "")
