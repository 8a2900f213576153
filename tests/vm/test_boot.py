"""A disk that was built boots as a machine: nothing failed, everything as locked, and no two clones are the same."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from goldsmith import report
from goldsmith.model.finding import Severity
from goldsmith.plan import plan_machine
from goldsmith.vm import boot
from tests.vm.conftest import MORE_MIB, PLAIN, PROJECT, SEEDED, Clones, goldsmith

# docs/boot-an-image.md's, on a machine whose disk is larger than the image
GROW = (
    "echo ', +' | sfdisk --no-reread --force -N 4 /dev/vda",
    "partx --update --nr 4 /dev/vda",
    "/usr/lib/systemd/systemd-growfs /data",
)
BOTH = pytest.mark.parametrize("name", [PLAIN, SEEDED])


@BOTH
def test_no_unit_failed(clones: Clones, name: str) -> None:
    assert clones.booted[name].failed == ()
    assert clones.booted[name].state == "running"


def test_audit_is_ok(clones: Clones) -> None:
    assert clones.audit.severity is Severity.OK, report.audit_text(clones.audit)


@BOTH
def test_the_locked_kernel_runs(clones: Clones, name: str) -> None:
    assert clones.booted[name].release == clones.lock.kernel


@BOTH
def test_root_is_a_slot_that_can_be_written_to(clones: Clones, name: str) -> None:
    words = clones.booted[name].command_line.split()
    assert any(word.startswith("root=PART") for word in words)
    assert "console=ttyS0" in clones.booted[name].command_line
    assert clones.run(name, "findmnt", "-no", "FSTYPE,OPTIONS", "/").startswith("ext4 rw")


def test_modules_are_the_locked_kernels(clones: Clones) -> None:
    for module in ("raid10", "md_mod", "xfs"):  # nvme is built into this kernel
        said = clones.run(PLAIN, "modinfo", "-F", "vermagic", module)
        assert said.split()[0] == clones.lock.kernel, module
    clones.run(PLAIN, "modprobe", "raid10")


def test_no_two_clones_are_the_same_machine(clones: Clones) -> None:
    one, two = clones.booted.values()
    assert one.machine_id != two.machine_id
    assert len(one.machine_id) == len(two.machine_id) == 32
    assert not set(one.host_keys) & set(two.host_keys)
    assert clones.run(PLAIN, "cat", "/etc/ssh/ssh_host_ed25519_key.pub").rsplit(" ", 1)[0] in one.host_keys


def test_cloud_init_is_off_without_a_data_source(clones: Clones) -> None:
    assert clones.run(PLAIN, "cat", "/run/cloud-init/cloud-init-generator.log").strip()
    assert clones.run(PLAIN, "sh", "-c", "cloud-init status || :").splitlines()[0] == "status: disabled"


def test_a_seed_gives_name_and_keys(clones: Clones) -> None:
    assert clones.run(SEEDED, "hostname") == "named-by-its-seed"
    user = replace(clones.logins[SEEDED], key=clones.seed_key, user="debian")
    assert user.run(["id", "-un"]).out.strip() == "debian"
    assert clones.run(SEEDED, "cloud-init", "status").splitlines()[0] == "status: done"


@BOTH
def test_an_address_by_dhcp(clones: Clones, name: str) -> None:
    assert "10.0.2.15" in clones.run(name, "ip", "-4", "-brief", "address")


def test_every_wired_interface_asks_and_the_resolver_hears_it(clones: Clones) -> None:
    assert "10.0.3.15" in clones.run(SEEDED, "ip", "-4", "-brief", "address")
    assert "10.0.3.3" in clones.run(SEEDED, "resolvectl", "dns")
    assert "nameserver 127.0.0.53" in clones.run(SEEDED, "cat", "/etc/resolv.conf")


def test_no_way_out(clones: Clones) -> None:
    said = clones.logins[PLAIN].run(["timeout", "5", "bash", "-c", "echo > /dev/tcp/10.0.2.2/22"], check=False)
    assert said.code != 0


def test_a_unit_that_fails_is_named(clones: Clones) -> None:
    login = clones.logins[PLAIN]
    login.run(["systemd-run", "--quiet", "--unit=fails-in-a-test", "--property=Type=oneshot", "false"], check=False)
    try:
        booted = boot.settle(login)
        (finding,) = boot.findings_of({PLAIN: plan_machine(PROJECT, "lab", PLAIN, login.ssh)}, [booted])
    finally:
        login.run(["systemctl", "reset-failed"])
    assert (finding.severity, finding.check) == (Severity.FAIL, "boot.state")
    assert finding.evidence == ("fails-in-a-test.service",)


def test_data_grows_as_the_page_says(clones: Clones) -> None:
    page = (PROJECT / "docs/boot-an-image.md").read_text()
    before = int(clones.run(SEEDED, "findmnt", "-bno", "SIZE", "/data"))
    for line in GROW:
        assert f"    {line}\n" in page
        clones.run(SEEDED, "sh", "-ec", line)
    assert int(clones.run(SEEDED, "findmnt", "-bno", "SIZE", "/data")) - before > 0.9 * MORE_MIB * 2**20
    assert clones.run(SEEDED, "findmnt", "-no", "PARTLABEL", "/data") == "data"


def test_a_reboot_keeps_the_identity(clones: Clones) -> None:
    login = clones.logins[PLAIN]
    login.reboot()
    assert clones.run(PLAIN, "cat", "/etc/machine-id") == clones.booted[PLAIN].machine_id
    said = login.run(["systemctl", "is-system-running", "--wait"], timeout=60, check=False).out.strip()
    assert said == "running"


def test_what_is_not_as_signed_is_not_booted(artifact: Path, tmp_path: Path) -> None:
    folder = artifact.parent / ".test-tampered"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        shutil.copytree(artifact, folder, copy_function=lambda source, target: Path(target).hardlink_to(source))
        (folder / "stowaway").write_text("x")
        done = goldsmith("boot", str(folder), expect=2)
        assert "stowaway" in done.stderr
        assert "FAIL: it is not booted" in done.stderr
    finally:
        shutil.rmtree(folder, ignore_errors=True)
