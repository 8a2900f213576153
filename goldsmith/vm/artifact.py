"""What is booted: the disk of an artifact that was verified, and a seed for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goldsmith.errors import GoldsmithError, NotBuiltYet
from goldsmith.vm.machine import Disk, DiskFormat

# format → the artifact's file, in the order in which one is chosen
DISKS: Mapping[DiskFormat, str] = {"raw": "disk.raw", "qcow2": "disk.qcow2"}
# what cloud-init's NoCloud looks for; without either it takes the drive for no data source
SEED = ("user-data", "meta-data")


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


def require_seed(folder: Path) -> None:
    """Raises GoldsmithError for a folder in which cloud-init would find no data source, and say nothing of it."""
    missing = [name for name in SEED if not (folder / name).is_file()]
    if missing:
        raise GoldsmithError(
            f"a seed has {' and '.join(SEED)}, this one no {' and no '.join(missing)}",
            where=str(folder),
            hint="meta-data may be one line, `instance-id: NAME`; user-data begins with `#cloud-config`",
        )
