"""An OCI image layout: the tree as a container's, in the folder that skopeo, podman and buildah read as oci:DIR.

Its one layer is rootfs.tar.zst, the same bytes under another name, so it costs neither time nor disk (a hard link)
and comes out the same as often as that does. What goes around it is four small JSON files, written here: tools that
make layouts would pack the layer once more, each its own way.
The layout: github.com/opencontainers/image-spec, image-layout.md, manifest.md, config.md (1.1).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from goldsmith.image.pack import Packed

_TYPE = "application/vnd.oci.image."
LAYER_TYPE = f"{_TYPE}layer.v1.tar+zstd"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Blobs:
    """The layout's own files: path below its folder → content. digest: of the image's manifest, which names it all."""

    files: Mapping[str, bytes]
    digest: str


def layout(image: str, architecture: str, created: str, lock_digest: str, layer: Packed) -> Blobs:
    """The JSON files around one layer. created: the lock's date, as ISO time."""
    config = {
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {"Env": [f"PATH={_PATH}"], "Cmd": ["/bin/bash"], "Labels": {"goldsmith.lock": lock_digest}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.tree_sha256}"]},
        "history": [{"created": created, "created_by": f"goldsmith build images/{image}"}],
    }
    config_blob = _json(config)
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}manifest.v1+json",
        "config": _descriptor(f"{_TYPE}config.v1+json", config_blob),
        "layers": [{"mediaType": LAYER_TYPE, "digest": f"sha256:{layer.sha256}", "size": layer.size}],
        "annotations": {"org.opencontainers.image.created": created, "org.opencontainers.image.title": image},
    }
    manifest_blob = _json(manifest)
    named = {
        **_descriptor(f"{_TYPE}manifest.v1+json", manifest_blob),
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": image},
    }
    index = {"schemaVersion": 2, "mediaType": f"{_TYPE}index.v1+json", "manifests": [named]}
    blobs = {blob_path(sha256(one).hexdigest()): one for one in (config_blob, manifest_blob)}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs}
    return Blobs(files, sha256(manifest_blob).hexdigest())


def blob_path(digest: str) -> str:
    """Where a layout keeps what has this sha256."""
    return f"blobs/sha256/{digest}"


def write(blobs: Blobs, packed: Path, layer: Packed, folder: Path) -> None:
    """Write the layout into the new folder `folder`. packed: the layer, on the same file system."""
    for path in (folder, folder / "blobs", folder / "blobs/sha256"):
        path.mkdir()
        path.chmod(0o755)  # whatever our umask is
    for name, content in blobs.files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o644)
    os.link(packed, folder / blob_path(layer.sha256))


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{sha256(content).hexdigest()}", "size": len(content)}


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
