"""disk.raw and disk.qcow2: the tree as a disk that boots by UEFI, on metal, in a machine and in a cloud.

    esp      systemd-boot, and one EFI program of kernel, initrd and command line: EFI/Linux/NAME-a.efi
    root-a   the tree, ext4
    root-b   as large, empty: the slot that the next image is written to, while this one runs
    data     what outlives a change of slots, mounted at /data

Kernel and root are one set on one slot, so that a slot boots the kernel that its modules were built for. Every
identifier is made from the lock: the same lock gives the same bytes, two images never share a PARTUUID.
Made from the packed tree without root, without mounts and loop devices, so a killed build leaves none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid5

from goldsmith import process
from goldsmith.errors import GoldsmithError, NotBuiltYet
from goldsmith.image.pack import Packed
from goldsmith.image.pipe import pipe
from goldsmith.image.tools import Tools
from goldsmith.model.lock import Lock
from goldsmith.removal import remove_tree

SECONDS = 1800.0
MIB = 1 << 20
ESP_MIB, DATA_MIB = 512, 1024
# What a slot has beside the tree: logs, a kernel more, the file system's own.
_ROOM, _ROOM_MIB, _STEP_MIB = 1.25, 512, 256
DATA = "/data"
_NAMESPACE = UUID("5d0b8a0e-9d0c-5a52-9b0a-3f6a6f2f8f11")
_BOOT_LOADER = "/usr/lib/systemd/boot/efi/systemd-bootx64.efi"
_WORK = ".disk"


def identifier(lock_digest: str, what: str) -> str:
    """The UUID of a partition, a file system or the disk itself."""
    return str(uuid5(_NAMESPACE, f"{lock_digest}/{what}"))


def slot_mib(tree_size: int) -> int:
    """How large a root slot is. tree_size: bytes of the tar."""
    need = tree_size / MIB * _ROOM + _ROOM_MIB
    return -int(-need // _STEP_MIB) * _STEP_MIB


def command_line(lock: Lock, parameters: Sequence[str]) -> str:
    """The kernel's command line on slot a. parameters: what the image's roles promise; they come last and win."""
    root, data = (identifier(lock.digest, one) for one in ("root-a", "data"))
    # by the cloud's serial console and a screen; nofail: a slot must boot though the data partition is damaged
    words = [f"root=PARTUUID={root}", "rw", "console=tty0", "console=ttyS0,115200",
             f"systemd.mount-extra=PARTUUID={data}:{DATA}:ext4:nofail"]  # fmt: skip
    return " ".join([*words, *parameters])


def definitions(lock: Lock, slot: int, folder: Path) -> dict[str, str]:
    """systemd-repart's files, name → content. slot: MiB. folder: where root.ext4 and the ESP's files lie."""
    parts = {
        "10-esp.conf": ("esp", "esp", ESP_MIB, ["Format=vfat", f"CopyFiles={folder}/esp:/"]),
        "20-root-a.conf": ("root", "root-a", slot, [f"CopyBlocks={folder}/root.ext4"]),
        "30-root-b.conf": ("root", "root-b", slot, []),
        "40-data.conf": ("linux-generic", "data", DATA_MIB, ["Format=ext4"]),
    }
    return {
        name: "\n".join([
            "[Partition]", f"Type={kind}", f"Label={label}", f"UUID={identifier(lock.digest, label)}",
            f"SizeMinBytes={mib}M", f"SizeMaxBytes={mib}M", *more, "",
        ]) for name, (kind, label, mib, more) in parts.items()
    }  # fmt: skip


def write(packed: Path, layer: Packed, lock: Lock, parameters: Sequence[str], target: Path, tools: Tools) -> None:
    """Make `target`, a raw disk, of a tar.zst.

    parameters: words for the kernel's command line. Raises GoldsmithError; an image without a kernel has no disk.
    """
    release = lock.kernel
    if release is None:
        raise GoldsmithError(
            "the image has no kernel, so a disk of it can't boot",
            where=f"images/{lock.image}/image.yml",
            hint="add `kernel` with its release and packages, or leave the format disk out",
        )
    if lock.architecture != "amd64":
        raise NotBuiltYet(f"the image format disk for {lock.architecture}")
    work = target.parent / _WORK
    work.mkdir(mode=0o700)
    try:
        making = _Making(work, lock.epoch, tools)
        slot = slot_mib(layer.tree_size)
        making.root(packed, lock, slot)
        making.boot(lock, release, command_line(lock, parameters))
        making.assemble(lock, slot, target)
    finally:
        remove_tree(work, target.parent)


def write_qcow2(raw: Path, target: Path, newest: int, tools: Tools) -> None:
    """The same disk for a cloud, compressed; needs QEMU 5.1 or newer, for zstd. Raises GoldsmithError."""
    # one coroutine: more may write clusters in another order
    convert = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", "-o", "compression_type=zstd", "-m", "1"]
    argv = tools.command([*convert, raw, target], newest, reads=[raw], writes=[target.parent])
    process.run(argv, timeout=SECONDS, what=f"make {target.name}", hint="is the disk full?")
    target.chmod(0o644)


class _Making:
    """The steps of one disk in its work folder."""

    def __init__(self, work: Path, newest: int, tools: Tools) -> None:
        self.work, self.newest, self.tools = work, newest, tools

    def root(self, packed: Path, lock: Lock, slot: int) -> None:
        """root.ext4, straight from the tar: owners, times and extended attributes are the tar's."""
        ids = {name: identifier(lock.digest, f"{name} of root-a") for name in ("file system", "hash seed")}
        file = self.work / "root.ext4"
        make = ["mke2fs", "-q", "-F", "-t", "ext4", "-L", "root-a", "-U", ids["file system"],
                "-E", f"hash_seed={ids['hash seed']}", "-d", "-", str(file), f"{slot}M"]  # fmt: skip
        unpack = self.tools.command(["zstd", "-d", "-q", "-c", packed], self.newest, reads=[packed])
        pipe(unpack, self._command(make), timeout=SECONDS, what="make the root file system", hint="is the disk full?")

    def boot(self, lock: Lock, release: str, line: str) -> None:
        """The ESP's files: the boot loader, its configuration, and the EFI program of slot a."""
        kernel, initrd, system = (
            self._take(path) for path in
            (f"/boot/vmlinuz-{release}", f"/boot/initrd.img-{release}", "/usr/lib/os-release")
        )  # fmt: skip
        esp = self.work / "esp"
        for folder in ("EFI/BOOT", "EFI/Linux", "EFI/systemd", "loader"):
            (esp / folder).mkdir(parents=True)
        name = f"{lock.image}-a.efi"
        (self.work / "cmdline").write_text(line)
        self._run(
            ["ukify", "build", f"--linux={kernel}", f"--initrd={initrd}", f"--os-release=@{system}",
             f"--uname={release}", f"--cmdline=@{self.work / 'cmdline'}", f"--output={esp / 'EFI/Linux' / name}"],
            "join kernel, initrd and command line",
        )  # fmt: skip
        for place in ("EFI/BOOT/BOOTX64.EFI", "EFI/systemd/systemd-bootx64.efi"):
            self._run(["cp", "--", _BOOT_LOADER, esp / place], "copy the boot loader")
        # no editor: whoever is at the console would add init=/bin/sh
        (esp / "loader/loader.conf").write_text(f"timeout 0\ndefault {name}\neditor no\n")
        for path in (esp, *esp.rglob("*")):  # vfat keeps times, and these would be today's
            os.utime(path, (self.newest, self.newest))

    def assemble(self, lock: Lock, slot: int, target: Path) -> None:
        """The partition table and all that is in it."""
        folder = self.work / "repart.d"
        folder.mkdir()
        for name, text in definitions(lock, slot, self.work).items():
            (folder / name).write_text(text)
        # a random one otherwise, also when the file system's UUID is given
        seed = f"SYSTEMD_REPART_MKFS_OPTIONS_EXT4=-E hash_seed={identifier(lock.digest, 'hash seed of data')}"
        disk = self.work / target.name
        self._run(
            ["env", seed, "systemd-repart", f"--definitions={folder}", "--empty=create", "--size=auto", "--offline=yes",
             "--dry-run=no", f"--seed={identifier(lock.digest, 'disk')}", "--no-pager", disk],
            "write the partitions",
        )  # fmt: skip
        disk.chmod(0o644)
        os.rename(disk, target)

    def _take(self, path: str) -> Path:
        """A file out of root.ext4."""
        file = self.work / path.rsplit("/", 1)[1]
        said = self._run(["debugfs", "-R", f'dump "{path}" "{file}"', self.work / "root.ext4"], f"read {path}")
        if not file.is_file() or not file.stat().st_size:  # debugfs exits with 0, whatever it did
            raise GoldsmithError(
                f"there is no {path} in the image: {said.splitlines()[-1] if said else 'nothing said'}",
                where="make disk.raw",
                hint="the kernel's packages bring /boot/vmlinuz-RELEASE, and initramfs-tools or dracut the initrd",
            )
        return file

    def _run(self, argv: Sequence[str | Path], what: str) -> str:
        done = process.run(self._command(argv), timeout=SECONDS, what=what, hint="is the disk full?")
        return (done.err or done.out).strip()

    def _command(self, argv: Sequence[str | Path]) -> list[str]:
        return self.tools.command(argv, self.newest, writes=[self.work])
