"""QEMU's command line, of a machine as data."""

from __future__ import annotations

import base64
import uuid
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from goldsmith.vm.accelerator import KVM, TCG, candidates
from goldsmith.vm.machine import Disk, Machine, Nvme, Places, command, overlay_command

ID = uuid.UUID("0a1b2c3d-0000-4000-8000-000000000001")
MACHINE = Machine("lab-1", Disk(Path("/artifact/disk.raw")), identity=ID)
PLACES = Places(Path("/private"))


def after(argv: list[str], option: str) -> list[str]:
    """The values of an option, in order."""
    return [value for word, value in pairwise(argv) if word == option]


def test_the_artifact_is_never_opened_for_writing() -> None:
    argv = command(MACHINE, PLACES, TCG, 9)
    assert not any("/artifact" in word for word in argv)
    assert "if=none,id=disk,format=qcow2,cache=unsafe,discard=unmap,file=/private/disk.qcow2" in after(argv, "-drive")
    backing = overlay_command(MACHINE, PLACES)
    # the backing format is named: QEMU would otherwise guess it from the disk's own first bytes
    assert backing[-5:] == ["-F", "raw", "-b", "/artifact/disk.raw", "/private/disk.qcow2"]
    assert overlay_command(replace(MACHINE, size=9000), PLACES) == [*backing, "9000M"]


def test_firmware_is_shared_and_its_variables_are_not() -> None:
    code, variables = after(command(MACHINE, PLACES, KVM, 9), "-drive")[:2]
    assert "readonly=on" in code
    assert code.endswith("OVMF_CODE_4M.fd")
    assert variables.endswith("file=/private/firmware-variables.fd")


def test_no_way_out_and_one_way_in() -> None:
    (network,) = after(command(MACHINE, PLACES, KVM, 9), "-netdev")
    # port 0: the kernel chooses a free one, and no other program can take it in between
    assert network == "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-:22"


def test_machines_differ_in_what_firmware_and_network_say_of_them() -> None:
    one, two = (replace(MACHINE, identity=uuid.uuid4()) for _ in range(2))
    assert one.mac != two.mac
    assert after(command(one, PLACES, KVM, 9), "-uuid") != after(command(two, PLACES, KVM, 9), "-uuid")
    assert MACHINE.mac == "52:54:00:0a:1b:2c"
    assert Machine("a", MACHINE.disk).identity != Machine("a", MACHINE.disk).identity


def test_accelerators() -> None:
    assert after(command(MACHINE, PLACES, KVM, 9), "-accel") == ["kvm"]
    assert after(command(MACHINE, PLACES, TCG, 9), "-cpu") == ["max"]


def test_what_can_be_opened_is_tried_first(tmp_path: Path) -> None:
    device = tmp_path / "kvm"
    assert candidates(device) == (TCG,)
    device.touch()
    assert candidates(device) == (KVM, TCG)


def test_nvme_drives_are_in_their_order_each_behind_its_own_port() -> None:
    drives = tuple(Nvme(f"n{number}", Disk(Path(f"/drives/{number}.raw")), f"FAKE{number}") for number in range(3))
    devices = after(command(replace(MACHINE, nvme=drives), PLACES, TCG, 9), "-device")
    nvme = [word for word in devices if word.startswith("nvme,")]
    assert nvme == [f"nvme,id=n{n},bus=port-n{n},drive=drive-n{n},serial=FAKE{n}" for n in range(3)]
    assert [word for word in devices if "root-port" in word][2] == "pcie-root-port,id=port-n2,chassis=3,slot=3"


def test_a_seed_is_a_read_only_drive_called_cidata() -> None:
    argv = command(replace(MACHINE, seed=Path("/private/seed")), PLACES, TCG, 9)
    (seed,) = (word for word in after(argv, "-drive") if "id=seed" in word)
    assert "file.label=CIDATA" in seed
    assert seed.startswith("if=none,id=seed,format=raw,read-only=on")


def test_credentials_are_systemds() -> None:
    key = "ssh-ed25519 AAAA goldsmith-boot\n"
    (value,) = after(
        command(replace(MACHINE, credentials={"ssh.authorized_keys.root": key}), PLACES, TCG, 9), "-smbios"
    )
    start = "type=11,value=io.systemd.credential.binary:ssh.authorized_keys.root="
    assert value.startswith(start)
    assert base64.b64decode(value.removeprefix(start)).decode() == key


def test_a_comma_in_a_path_begins_no_option() -> None:
    argv = command(replace(MACHINE, name="a,b"), Places(Path("/with,comma")), TCG, 9)
    assert "guest=a,,b" in argv
    assert all("/with,comma/" not in word for word in argv)


def test_qemu_ends_with_us() -> None:
    assert command(MACHINE, PLACES, TCG, 9)[:3] == ["setpriv", "--pdeathsig", "KILL"]
