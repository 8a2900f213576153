"""SBOMs: what standards ask of them, nothing of the day they were made on, and nothing but the manifest's."""

from __future__ import annotations

import json
import re

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.image import cyclonedx, sbom, spdx
from goldsmith.image.components import entries
from tests.unit import make, make_artifact

LOCK = make.lock({**make.PACKAGES, "libstdc++6": ("1:14.2.0-19", "gcc-14", None)})
MANIFEST = make_artifact.manifest(LOCK, 1, "2" * 64)
NCCL = "pkg:deb/debian/libnccl2@2.22.3-1-1?arch=amd64&distro=trixie"
CPP = "pkg:deb/debian/libstdc%2B%2B6@1:14.2.0-19?arch=amd64&distro=trixie"
TORCH = "pkg:deb/debian/python3-torch@2.6.0%2Bdfsg-7?arch=amd64&distro=trixie"
WHEEL = "pkg:pypi/torch@2.6.0%2Bcu124"


def test_a_package_has_its_name_everywhere() -> None:
    assert [one.purl for one in entries(MANIFEST)][1:] == [NCCL, CPP, TORCH, WHEEL]


def test_cyclonedx() -> None:
    document = json.loads(cyclonedx.text(MANIFEST))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document["metadata"]["timestamp"] == "2026-11-30T00:00:00+00:00"
    found = {one["bom-ref"]: one for one in document["components"]}
    assert found[NCCL]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    assert {"name": "goldsmith:source", "value": "nvidia-nccl"} in found[NCCL]["properties"]
    assert found[f"torch/{WHEEL}"]["purl"] == WHEEL
    assert len(found) == len(LOCK.packages) + 1


def test_spdx() -> None:
    document = json.loads(spdx.text(MANIFEST))
    assert (document["spdxVersion"], document["dataLicense"]) == ("SPDX-2.3", "CC0-1.0")
    assert document["creationInfo"] == {"created": "2026-11-30T00:00:00Z", "creators": ["Tool: goldsmith"]}
    assert document["documentNamespace"].startswith("urn:uuid:")
    ids = [one["SPDXID"] for one in document["packages"]]
    assert len(set(ids)) == len(ids) == len(LOCK.packages) + 2
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one) for one in ids)
    for one in document["packages"]:
        assert not one["filesAnalyzed"] and one["downloadLocation"] == "NOASSERTION"
    related = {(one["relationshipType"], one["relatedSpdxElement"]) for one in document["relationships"]}
    assert related == {("DESCRIBES", ids[0]), *(("CONTAINS", one) for one in ids[1:])}
    nccl = next(one for one in document["packages"] if one["name"] == "libnccl2")
    assert nccl["externalRefs"][0]["referenceLocator"] == NCCL
    assert nccl["checksums"] == [{"algorithm": "SHA256", "checksumValue": "0" * 64}]
    assert nccl["sourceInfo"] == "repository base; source nvidia-nccl"


@pytest.mark.parametrize("file", sbom.DOCUMENTS)
def test_a_document_says_the_manifest_and_twice_the_same(file: str) -> None:
    text = sbom.DOCUMENTS[file].text(MANIFEST)
    assert text == sbom.DOCUMENTS[file].text(MANIFEST)
    assert sbom.differences(file, text.encode(), MANIFEST) == []
    other = text.replace("2.22.3-1-1", "2.23.4-1")
    assert any("libnccl2" in one for one in sbom.differences(file, other.encode(), MANIFEST))
    one = text.replace("0" * 64, "3" * 64, 1)
    assert len(sbom.differences(file, one.encode(), MANIFEST)) == 1
    assert len(sbom.differences(file, text.encode(), make_artifact.manifest(make.lock(), 1, "2" * 64))) == 1


@pytest.mark.parametrize("file", sbom.DOCUMENTS)
@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"bomFormat": "x"}', '{"spdxVersion": "SPDX-2.3", "packages": [{}]}']
)
def test_what_is_no_sbom_is_told(file: str, content: str) -> None:
    with pytest.raises(GoldsmithError, match="not an SBOM"):
        sbom.differences(file, content.encode(), MANIFEST)
