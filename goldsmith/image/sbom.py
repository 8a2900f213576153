"""The SBOMs of an artifact, and whether they list what its manifest has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from goldsmith.errors import GoldsmithError
from goldsmith.image import cyclonedx, spdx
from goldsmith.image.components import Entry, entries


@dataclass(frozen=True)
class Document:
    """One kind of SBOM. text: manifest → content. listed: parsed content → what it lists."""

    text: Callable[[Mapping[str, Any]], str]
    listed: Callable[[Mapping[str, Any]], list[Entry]]


# file → its kind
DOCUMENTS: Mapping[str, Document] = {
    "sbom.cdx.json": Document(cyclonedx.text, cyclonedx.listed),
    "sbom.spdx.json": Document(spdx.text, spdx.listed),
}


def differences(file: str, content: bytes, manifest: Mapping[str, Any]) -> list[str]:
    """Where an SBOM lists something else than the manifest, one sentence each. Raises GoldsmithError if it is none."""
    try:
        listed = DOCUMENTS[file].listed(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise GoldsmithError(f"not an SBOM of its kind: {error!r}", where=file) from None
    expected = {one.ref: replace(one, properties=()) for one in entries(manifest)}
    found = {one.ref: one for one in listed}
    twice = Counter(one.ref for one in listed)
    return [
        *(f"{ref} is listed twice" for ref, count in sorted(twice.items()) if count > 1),
        *(f"{ref} is in the manifest and not in the SBOM" for ref in sorted(expected.keys() - found.keys())),
        *(f"{ref} is in the SBOM and not in the manifest" for ref in sorted(found.keys() - expected.keys())),
        *(
            f"{ref} is another one in the SBOM: {found[ref].name} {found[ref].version}, sha256 {found[ref].sha256}"
            for ref in sorted(found.keys() & expected.keys())
            if found[ref] != expected[ref]
        ),
    ]
