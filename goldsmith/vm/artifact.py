"""The disk of an artifact that was verified, and the files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goldsmith.errors import GoldsmithError, NotBuiltYet
from goldsmith.vm.machine import Disk, DiskFormat

# format → the artifact's file, in the order in which one is chosen
DISKS: Mapping[DiskFormat, str] = {"raw": "disk.raw", "qcow2": "disk.qcow2"}


def disk_of(folder: Path, format_: DiskFormat | None = None) -> Disk:
    """The artifact's disk, of this format or of any. Raises GoldsmithError if it has none."""
    for kind, file in DISKS.items():
        if format_ in (None, kind) and (folder / file).is_file():
            return Disk(folder / file, kind)
    wanted = DISKS[format_] if format_ else " or ".join(DISKS.values())
    raise GoldsmithError(
        f"this artifact has no {wanted}", where=str(folder), hint="build it: goldsmith build images/NAME --format disk"
    )


def require_architecture(manifest: Mapping[str, Any]) -> None:
    """Raises NotBuiltYet for a disk of another architecture than amd64."""
    architecture = manifest["base"]["architecture"]
    if architecture != "amd64":
        raise NotBuiltYet(f"booting a disk for {architecture}")
