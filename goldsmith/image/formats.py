"""The formats that one converged tree is written in. A format is a line in FORMATS and a function in `make`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.image import disk, oci, squashfs
from goldsmith.image.pack import Packed, file_digest
from goldsmith.image.tools import BWRAP, Tools
from goldsmith.model.lock import Lock


@dataclass(frozen=True)
class Format:
    """file: what it is called in an artifact. tools: what this machine needs, tool → Debian package. packages: those of
    the tools tree that make it. gib: disk, besides the packed tree. beside: the formats that come with it.
    """

    file: str
    tools: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    gib: float = 0.0
    beside: tuple[str, ...] = ()


FORMATS: Mapping[str, Format] = {
    "rootfs": Format("rootfs.tar.zst"),
    "squashfs": Format("rootfs.squashfs", BWRAP, ("squashfs-tools",), gib=1.0),
    "oci": Format("oci"),
    "disk": Format(
        "disk.raw", BWRAP, ("e2fsprogs", "systemd-repart", "systemd-ukify", "systemd-boot-efi", "dosfstools", "mtools"),
        gib=6.0, beside=("qcow2",),
    ),
    "qcow2": Format("disk.qcow2", BWRAP, ("qemu-utils",), gib=1.0, beside=("disk",)),
}  # fmt: skip


@dataclass(frozen=True)
class Made:
    """One format in an artifact. sha256: of the file; of an OCI layout, of its image's manifest: what a registry and
    `podman pull NAME@sha256:…` call it by. size: bytes, of an OCI layout the layer's.
    """

    file: str
    size: int
    sha256: str


def parse(text: str) -> tuple[str, ...]:
    """`rootfs,oci` as names in the order of FORMATS, with those that come along. Raises GoldsmithError for what isn't
    one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = f"formats are {', '.join(FORMATS)}"
    if not names:
        raise GoldsmithError("no format is named", where="--format", hint=known)
    for name in names:
        if name not in FORMATS:
            near = difflib.get_close_matches(name, FORMATS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? {known}" if near else known
            raise GoldsmithError(f"there is no image format {name}", where="--format", hint=hint)
    wanted = {*names, *(one for name in names for one in FORMATS[name].beside)}
    return tuple(name for name in FORMATS if name in wanted)


def tools(names: Iterable[str]) -> dict[str, str]:
    """What these formats need on this machine: tool → Debian package."""
    return {tool: package for name in names for tool, package in FORMATS[name].tools.items()}


def packages(names: Iterable[str]) -> list[str]:
    """The packages of the tools tree that make these formats; empty where none is needed."""
    return sorted({package for name in names for package in FORMATS[name].packages})


def make(
    name: str, packed: Path, layer: Packed, lock: Lock, folder: Path, *, parameters: Sequence[str], tools: Tools
) -> Made:
    """Write one format into `folder`, of the packed tree, which lies on the same file system.

    packed: a tar.zst. layer: its digests. parameters: of the kernel's command line. Raises GoldsmithError.
    """
    target = folder / FORMATS[name].file
    newest = lock.epoch
    match name:
        case "rootfs":
            os.link(packed, target)
            return Made(target.name, layer.size, layer.sha256)
        case "oci":
            blobs = oci.layout(lock.image, lock.architecture, lock.created, lock.digest, layer)
            oci.write(blobs, packed, layer, target)
            return Made(target.name, layer.size, blobs.digest)
        case "disk":
            disk.write(packed, layer, lock, parameters, target, tools)
        case "qcow2":
            disk.write_qcow2(folder / FORMATS["disk"].file, target, newest, tools)
        case _:
            squashfs.write(packed, target, newest, tools)
    target.chmod(0o644)
    return Made(target.name, target.stat().st_size, file_digest(target))
