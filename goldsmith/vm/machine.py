"""A machine as data, and QEMU's command line for it: a pure function of both."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from goldsmith.vm.accelerator import Accelerator

QEMU = "qemu-system-x86_64"
# program or file → the Debian (and Ubuntu) package that has it
TOOLS: Mapping[str, str] = {
    QEMU: "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "/usr/share/OVMF/OVMF_CODE_4M.fd": "ovmf",
    "/usr/share/OVMF/OVMF_VARS_4M.fd": "ovmf",
}
SSH_PORT = 22
DiskFormat = Literal["raw", "qcow2"]


@dataclass(frozen=True)
class Disk:
    """An image file. A machine's first disk is never written to: each start lays an overlay over it."""

    path: Path
    format: DiskFormat = "raw"


@dataclass(frozen=True)
class Nvme:
    """An NVMe drive, written to. id: what it is called when it is taken away; serial: what the guest sees."""

    id: str
    disk: Disk
    serial: str


@dataclass(frozen=True)
class Firmware:
    """UEFI. variables: the template of a machine's own copy."""

    code: Path = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
    variables: Path = Path("/usr/share/OVMF/OVMF_VARS_4M.fd")


@dataclass(frozen=True)
class Machine:
    """memory: MiB. size: MiB of the disk that the guest sees, where that is larger than the image; 0: as large. nvme:
    in the order of their PCI slots. seed: a folder with cloud-init's user-data and meta-data, shown to the guest as a
    drive `cidata`. credentials: systemd's, by name; they stand on QEMU's command line, which every user of this
    machine can read: nothing secret. identity: the firmware's, of which systemd makes the machine-id. options: more
    words for QEMU.
    """

    name: str
    disk: Disk
    memory: int = 2048
    size: int = 0
    cpus: int = 2
    firmware: Firmware = Firmware()
    nvme: tuple[Nvme, ...] = ()
    seed: Path | None = None
    credentials: Mapping[str, str] = field(default_factory=dict, hash=False)
    identity: uuid.UUID = field(default_factory=uuid.uuid4)
    options: tuple[str, ...] = ()

    @property
    def mac(self) -> str:
        """The address of its one network interface; QEMU's own are the same in every machine."""
        return "52:54:00:" + ":".join(self.identity.bytes[:3].hex()[at : at + 2] for at in (0, 2, 4))


@dataclass(frozen=True)
class Places:
    """Where a start's own files are, in a folder that only we can read."""

    folder: Path

    @property
    def overlay(self) -> Path:
        return self.folder / "disk.qcow2"

    @property
    def variables(self) -> Path:
        return self.folder / "firmware-variables.fd"

    @property
    def console(self) -> Path:
        return self.folder / "console.log"

    @property
    def log(self) -> Path:
        """What QEMU itself says."""
        return self.folder / "qemu.log"


def command(machine: Machine, places: Places, accelerator: Accelerator, qmp: int) -> list[str]:
    """QEMU's words for a machine. qmp: the number of an open, connected socket that QEMU inherits.

    The guest has no way out: of its network it sees a DHCP server and the forwarded ssh port, whose number on 127.0.0.1
    the kernel chooses (`info usernet` tells it): no two starts can want the same one.
    """
    return [
        # a machine that nobody waits for any more must not stay, not even if we are killed
        *("setpriv", "--pdeathsig", "KILL", QEMU),
        *("-name", f"guest={_word(machine.name)}", "-nodefaults", "-no-user-config", "-display", "none"),
        *("-machine", "q35", *accelerator.argv, "-smp", str(machine.cpus), "-m", str(machine.memory)),
        *("-uuid", str(machine.identity), "-device", "virtio-rng-pci"),
        *("-chardev", f"socket,id=qmp,fd={qmp}", "-mon", "chardev=qmp,mode=control"),
        *("-chardev", f"file,id=console,path={_word(places.console)}", "-serial", "chardev:console"),
        *("-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={_word(machine.firmware.code)}"),
        *("-drive", f"if=pflash,unit=1,format=raw,file={_word(places.variables)}"),
        *_drive("disk", Disk(places.overlay, "qcow2")),
        *("-device", "virtio-blk-pci,drive=disk,bootindex=1"),
        *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:{SSH_PORT}"),
        *("-device", f"virtio-net-pci,netdev=net,romfile=,mac={machine.mac}"),
        *(word for number, one in enumerate(machine.nvme) for word in _nvme(one, number)),
        *(_seed(machine.seed) if machine.seed else ()),
        *(word for name, value in machine.credentials.items() for word in _credential(name, value)),
        *machine.options,
    ]


def overlay_command(machine: Machine, places: Places) -> list[str]:
    """qemu-img's words for the writable layer over the machine's disk."""
    disk = machine.disk
    return [
        *("qemu-img", "create", "-q", "-f", "qcow2", "-F", disk.format),
        *("-b", str(disk.path.absolute()), str(places.overlay)),
        *([f"{machine.size}M"] if machine.size else []),
    ]


def _drive(name: str, disk: Disk) -> Sequence[str]:
    # unsafe: nothing here outlives the run, so no flush has to reach this machine's disk
    return ("-drive", f"if=none,id={name},format={disk.format},cache=unsafe,discard=unmap,file={_word(disk.path)}")


def _nvme(one: Nvme, number: int) -> Sequence[str]:
    """Each behind a port of its own, from which it can be taken away."""
    port = f"port-{one.id}"
    return (
        *("-device", f"pcie-root-port,id={port},chassis={number + 1},slot={number + 1}"),
        *_drive(f"drive-{one.id}", one.disk),
        *("-device", f"nvme,id={one.id},bus={port},drive=drive-{one.id},serial={_word(one.serial)}"),
    )


def _seed(folder: Path) -> Sequence[str]:
    # QEMU shows the folder as a FAT file system: no tool is needed to make one
    options = f"file.driver=vvfat,file.dir={_word(folder)},file.label=CIDATA,file.read-only=on"
    return (
        *("-drive", f"if=none,id=seed,format=raw,read-only=on,{options}"),
        *("-device", "virtio-blk-pci,drive=seed"),
    )


def _credential(name: str, value: str) -> Sequence[str]:
    encoded = base64.b64encode(value.encode()).decode()
    return ("-smbios", f"type=11,value=io.systemd.credential.binary:{name}={encoded}")


def _word(value: object) -> str:
    """A value inside an option of QEMU's, where a comma would begin the next one."""
    return str(value).replace(",", ",,")
