"""The formats that one converged tree is written in. A format is a line in FORMATS and a function in `make`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from goldsmith.errors import GoldsmithError, NotBuiltYet
from goldsmith.image import oci, squashfs
from goldsmith.image.pack import Packed, epoch, file_digest
from goldsmith.model.lock import Lock


@dataclass(frozen=True)
class Format:
    """file: what it is called in an artifact. tools: what this machine needs, tool → Debian package. gib: disk."""

    file: str
    tools: Mapping[str, str]
    gib: float = 0.0


FORMATS: Mapping[str, Format] = {
    "rootfs": Format("rootfs.tar.zst", {}),
    # -tar and zstd: squashfs-tools 4.5, so Debian 12, Ubuntu 22.04
    "squashfs": Format("rootfs.squashfs", {"mksquashfs": "squashfs-tools"}, gib=1.0),
    "oci": Format("oci", {}),
}
LATER = ("disk",)


@dataclass(frozen=True)
class Made:
    """One format in an artifact. sha256: of the file; of an OCI layout, of its image's manifest: what a registry and
    `podman pull NAME@sha256:…` call it by. size: bytes, of an OCI layout the layer's.
    """

    file: str
    size: int
    sha256: str


def parse(text: str) -> tuple[str, ...]:
    """`rootfs,oci` as names in the order of FORMATS. Raises GoldsmithError for what isn't one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = f"formats are {', '.join(FORMATS)}"
    if not names:
        raise GoldsmithError("no format is named", where="--format", hint=known)
    for name in names:
        if name in LATER:
            raise NotBuiltYet(f"the image format {name}")
        if name not in FORMATS:
            near = difflib.get_close_matches(name, [*FORMATS, *LATER], n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? {known}" if near else known
            raise GoldsmithError(f"there is no image format {name}", where="--format", hint=hint)
    return tuple(name for name in FORMATS if name in names)


def tools(names: Iterable[str]) -> dict[str, str]:
    """What these formats need on this machine: tool → Debian package."""
    return {tool: package for name in names for tool, package in FORMATS[name].tools.items()}


def make(name: str, packed: Path, layer: Packed, lock: Lock, folder: Path) -> Made:
    """Write one format into `folder`, of the packed tree, which lies on the same file system.

    packed: a tar.zst. layer: its digests. Raises GoldsmithError.
    """
    target = folder / FORMATS[name].file
    if name == "rootfs":
        os.link(packed, target)
        return Made(target.name, layer.size, layer.sha256)
    if name == "oci":
        blobs = oci.layout(lock.image, lock.architecture, lock.created, lock.digest, layer)
        oci.write(blobs, packed, layer, target)
        return Made(target.name, layer.size, blobs.digest)
    squashfs.write(packed, target, epoch(lock))
    target.chmod(0o644)
    return Made(target.name, target.stat().st_size, file_digest(target))
