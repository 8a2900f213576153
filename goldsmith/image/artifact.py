"""An artifact: what a build wrote. rootfs.tar.zst, and manifest.json, which is written last and says what it
is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldsmith.errors import GoldsmithError
from goldsmith.image.pack import file_digest

ROOTFS = "rootfs.tar.zst"
MANIFEST = "manifest.json"
SCHEMA = 1


@dataclass(frozen=True)
class Artifact:
    """One built image in a folder. key: of all that it was built from."""

    folder: Path
    image: str
    key: str
    size: int
    sha256: str
    tree_sha256: str
    manifest: dict[str, Any]

    @property
    def rootfs(self) -> Path:
        return self.folder / ROOTFS


def read_artifact(folder: Path, *, verify: bool = True) -> Artifact:
    """The artifact in a folder.

    verify: read the whole rootfs and compare its digest with the manifest's; otherwise only its size is.
    Raises GoldsmithError if there is none, or it isn't what its manifest says.
    """
    path = folder / MANIFEST
    hint = "build it: goldsmith build images/NAME"
    try:
        data = json.loads(path.read_bytes())
        rootfs = data["rootfs"]
        if data["schema"] != SCHEMA or rootfs["file"] != ROOTFS:
            raise ValueError(f"schema {data['schema']}")
        artifact = Artifact(
            folder=folder,
            image=str(data["image"]),
            key=str(data["key"]),
            size=int(rootfs["size"]),
            sha256=str(rootfs["sha256"]),
            tree_sha256=str(rootfs["tree_sha256"]),
            manifest=data,
        )
    except FileNotFoundError:
        raise GoldsmithError("there is no built image here", where=str(folder), hint=hint) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GoldsmithError(
            f"not a manifest of this version of goldsmith: {error!r}", where=str(path), hint=hint
        ) from None
    try:
        size = artifact.rootfs.stat().st_size
    except OSError as error:
        raise GoldsmithError(f"can't be read: {error.strerror}", where=str(artifact.rootfs), hint=hint) from None
    if size != artifact.size or (verify and file_digest(artifact.rootfs) != artifact.sha256):
        raise GoldsmithError(
            "isn't what its manifest says: another size or sha256",
            where=str(artifact.rootfs),
            hint=f"remove {folder} and build it again",
        )
    return artifact
