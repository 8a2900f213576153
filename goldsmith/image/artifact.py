"""An artifact: what a build wrote. The tree in one or more formats, and its papers: manifest.json, which says what it
is, the SBOM, SHA256SUMS over all of it and, where a key was given, its signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from goldsmith.errors import GoldsmithError
from goldsmith.image import sums
from goldsmith.image.formats import FORMATS, Made

ROOTFS = FORMATS["rootfs"].file
MANIFEST = "manifest.json"
SCHEMA = 3
HINT = "build it: goldsmith build images/NAME"

_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Word = Annotated[str, Field(min_length=1)]
# What paths are made of: a manifest comes from anywhere, and none of these may lead out of a folder.
_Path = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Tree(_Strict):
    size: int
    sha256: _Digest


class _Made(_Strict):
    file: _Path
    size: int
    sha256: _Digest


class _Package(_Strict):
    version: _Word
    architecture: _Word
    sha256: _Digest
    held: bool
    source: str
    repository: str


class _Project(_Strict):
    version: _Word
    sha256: str


class _File(_Strict):
    sha256: str
    mode: str
    owner: str
    group: str


class _Base(_Strict):
    distribution: _Word
    release: _Word
    architecture: _Word


class _LockDigests(_Strict):
    digest: _Digest
    image_digest: str


class Manifest(_Strict):
    """manifest.json. tree: of the tar of the tree, whatever packs it; two builds of one lock have it in common.
    key: of all that the image was built from. command_line: what roles promise of the kernel's. packages, environments,
    files, units, roles, os, kernel: read back from the tree. tools: what wrote it, in the versions that it may differ
    with.
    """

    schema_: Literal[3] = Field(alias="schema")
    image: _Path
    key: str
    created: str
    base: _Base
    lock: _LockDigests
    desired: str
    tree: _Tree
    command_line: list[str]
    formats: dict[str, _Made]
    tools: dict[str, str]
    packages: dict[_Word, _Package]
    environments: dict[_Word, dict[_Word, _Project]]
    files: dict[str, _File]
    units: dict[str, Any]
    roles: dict[str, Any]
    os: dict[str, Any]
    kernel: dict[str, Any]


@dataclass(frozen=True)
class Artifact:
    """One built image in a folder. key: of all that it was built from. formats: name → what was made."""

    folder: Path
    image: str
    key: str
    tree_size: int
    tree_sha256: str
    formats: Mapping[str, Made]
    manifest: dict[str, Any]

    @property
    def rootfs(self) -> Path:
        return self.folder / ROOTFS

    @property
    def sha256(self) -> str:
        """Of rootfs.tar.zst. Raises GoldsmithError in an artifact that has none."""
        if made := self.formats.get("rootfs"):
            return made.sha256
        raise GoldsmithError(
            "this artifact has no rootfs", where=str(self.folder), hint="build it with --format rootfs"
        )

    @property
    def signed(self) -> bool:
        """There is a signature; whose, `goldsmith verify` says."""
        return (self.folder / sums.SIGNATURE).is_file()


def parse_manifest(content: bytes, where: str) -> dict[str, Any]:
    """manifest.json's content, as it stands. Raises GoldsmithError if it isn't one of this version."""
    try:
        return Manifest.model_validate_json(content).model_dump(by_alias=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise GoldsmithError(
            f"not a manifest of this version of goldsmith: {first['msg']} ({place})", where=where, hint=HINT
        ) from None


def read_artifact(folder: Path, *, verify: bool = True) -> Artifact:
    """The artifact in a folder.

    verify: read every file and compare it with SHA256SUMS; otherwise only sizes are looked at. Who signed it is not
    asked here. Raises GoldsmithError if there is none, or it isn't what it says it is.
    """
    path = folder / MANIFEST
    try:
        data = parse_manifest(path.read_bytes(), str(path))
        listed = sums.parse((folder / sums.SUMS).read_bytes(), str(folder / sums.SUMS))
    except FileNotFoundError:
        raise GoldsmithError("there is no built image here", where=str(folder), hint=HINT) from None
    except OSError as error:
        raise GoldsmithError(f"can't be read: {error.strerror}", where=str(folder), hint=HINT) from None
    formats = {name: Made(**data["formats"][name]) for name in FORMATS if name in data["formats"]}
    tree = data["tree"]
    artifact = Artifact(folder, data["image"], data["key"], tree["size"], tree["sha256"], formats, data)
    damaged = [one.path for one in sums.faults(folder, listed)] if verify else _sizes(artifact)
    if damaged:
        raise GoldsmithError(
            "isn't what SHA256SUMS and the manifest say",
            where=", ".join(str(folder / name) for name in damaged[:5]),
            hint=f"remove {folder} and build it again",
        )
    return artifact


def _sizes(artifact: Artifact) -> list[str]:
    """Files of another size than the manifest's, and those that aren't there."""
    plain = [one for name, one in artifact.formats.items() if name != "oci"]
    wrong = [one.file for one in plain if _size(artifact.folder / one.file) != one.size]
    layout = artifact.formats.get("oci")
    return [*wrong, layout.file] if layout and not (artifact.folder / layout.file).is_dir() else wrong


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
