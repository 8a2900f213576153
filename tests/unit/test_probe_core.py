"""The core parts over fake trees: what they read, and what they refuse to."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from goldsmith.probe.node import files, packages, system, units
from goldsmith.probe.node.run import Result, Run


class FakeRun(Run):
    """A rooted run whose commands are answered from a dictionary: the first words → what it prints."""

    def __init__(self, root: Path, want: dict[str, Any] | None = None, **rest: Any) -> None:
        self.commands: dict[str, Result] = rest.pop("commands", {})
        super().__init__(str(root), want, **rest)

    def __call__(self, cmd: Any, timeout: float = 3) -> Result:
        words = " ".join(cmd)
        for known, result in self.commands.items():
            if words.startswith(known):
                return result
        return Result(127, "", "not installed")


def lay(root: Path, tree: dict[str, str]) -> Path:
    for path, text in tree.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root


STATUS = """Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1.22.21

Package: libnccl2
Status: hold ok installed
Architecture: amd64
Multi-Arch: same
Version: 2.22.3-1-1
Description: a word
 Version: not this

Package: nvidia-open-kernel-dkms
Status: install ok half-configured
Architecture: amd64
Version: 550.163.01-2

Package: libc6
Status: install ok installed
Architecture: i386
Version: 2.41-12

Package: broken
Status: install reinstreq half-installed
Architecture: all
Version: 1

Package: old
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: never
Status: unknown ok not-installed
Architecture: amd64
"""


def test_packages_with_holds_broken_and_foreign_ones(tmp_path: Path) -> None:
    lay(tmp_path, {"/var/lib/dpkg/status": STATUS, "/var/lib/dpkg/info/libnccl2:amd64.list": "",
                   "/var/lib/dpkg/info/dpkg.list": ""})  # fmt: skip
    os.utime(tmp_path / "var/lib/dpkg/info/libnccl2:amd64.list", (1700000000, 1700000000))
    facts = packages.package_facts(FakeRun(tmp_path))
    assert facts["libnccl2"] == {
        "version": "2.22.3-1-1", "arch": "amd64", "status": "hi", "held": True, "since": "2023-11-14T22:13:20Z",
    }  # fmt: skip
    assert facts["nvidia-open-kernel-dkms"]["status"] == "iF"
    assert facts["broken"]["status"] == "iHR"
    assert set(facts) == {"dpkg", "libnccl2", "nvidia-open-kernel-dkms", "libc6:i386", "broken"}
    assert facts["libc6:i386"]["since"] is None


def test_a_killed_dpkgs_journal_overrules_its_status_file(tmp_path: Path) -> None:
    lay(tmp_path, {"/var/lib/dpkg/status": STATUS, "/var/lib/dpkg/updates/tmp.i": "Package: x\n",
                   "/var/lib/dpkg/updates/0001": "Package: libnccl2\nStatus: install ok unpacked\n"
                                                 "Architecture: amd64\nVersion: 2.30.4-1\n"})  # fmt: skip
    facts = packages.package_facts(FakeRun(tmp_path))
    assert (facts["libnccl2"]["version"], facts["libnccl2"]["status"]) == ("2.30.4-1", "iU")
    assert "x" not in facts


def test_no_dpkg_database_is_an_error_not_an_empty_node(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        packages.package_facts(FakeRun(tmp_path))


def test_files_show_text_only_where_it_differs_and_is_no_secret(tmp_path: Path) -> None:
    lay(tmp_path, {"/etc/a": "edited\n", "/etc/same": "same\n", "/etc/secret": "password\n", "/etc/big": "x" * 9000})
    (tmp_path / "etc/private").write_text("p")
    (tmp_path / "etc/private").chmod(0o640)
    (tmp_path / "etc/link").symlink_to("/etc/shadow")
    os.mkfifo(tmp_path / "etc/fifo")
    (tmp_path / "etc/folder").mkdir()
    same = hashlib.sha256(b"same\n").hexdigest()
    names = ("a", "secret", "big", "private", "link", "fifo", "folder", "none", "none/below")
    want = {"files": {f"/etc/{name}": "0" * 64 for name in names} | {"/etc/same": same, "/etc/a/b": None},
            "secret_files": ["/etc/secret"]}  # fmt: skip
    facts = files.file_facts(FakeRun(tmp_path, want))
    assert facts["/etc/a"]["text"] == "edited\n" and facts["/etc/a"]["mode"] == 0o644
    assert facts["/etc/a"]["sha256"] == hashlib.sha256(b"edited\n").hexdigest()
    for quiet in ("same", "secret", "big", "private"):
        assert "sha256" in facts[f"/etc/{quiet}"] and "text" not in facts[f"/etc/{quiet}"]
    assert facts["/etc/link"]["type"] == "link" and facts["/etc/link"]["target"] == "/etc/shadow"
    assert "sha256" not in facts["/etc/link"]
    assert facts["/etc/fifo"]["type"] == "other" and facts["/etc/folder"]["type"] == "directory"
    assert facts["/etc/none"] == facts["/etc/none/below"] == facts["/etc/a/b"] == {"type": "absent"}


def test_package_files_are_hashed_up_to_the_limit_and_all_when_deep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(tmp_path, {"/lib/small.so": "1", "/lib/large.so": "22"})
    (tmp_path / "lib/link.so").symlink_to("small.so")
    monkeypatch.setattr(files, "HASH_LIMIT", 1)
    want = {"package_files": ["/lib/small.so", "/lib/large.so", "/lib/link.so", "/lib/gone.so"]}
    facts = files.package_file_facts(FakeRun(tmp_path, want))
    assert facts["/lib/small.so"]["sha256"] == hashlib.sha256(b"1").hexdigest()
    assert facts["/lib/large.so"]["size"] == 2 and "sha256" not in facts["/lib/large.so"]
    named = files.package_file_facts(FakeRun(tmp_path, {**want, "hash_always": ["/lib/large.so"]}))
    assert "sha256" in named["/lib/large.so"]
    assert facts["/lib/link.so"]["type"] == "link" and facts["/lib/gone.so"] == {"type": "absent"}
    assert "sha256" in files.package_file_facts(FakeRun(tmp_path, {**want, "deep": True}))["/lib/large.so"]


def kernel_tree(root: Path, running: str, images: list[str], trees: list[str]) -> Path:
    tree = {"/proc/sys/kernel/osrelease": running + "\n", "/proc/cmdline": "root=/dev/sda quiet\n"}
    tree |= {f"/boot/vmlinuz-{one}": "" for one in images} | {f"/lib/modules/{one}/modules.dep": "" for one in trees}
    return lay(root, tree)


def test_a_newer_kernel_that_is_installed_asks_for_a_reboot(tmp_path: Path) -> None:
    both = ["6.12.9+deb13-amd64", "6.12.117+deb13-amd64"]
    kernel_tree(tmp_path, both[0], both, both)
    facts = system.kernel_facts(FakeRun(tmp_path))
    assert facts["installed"] == both and facts["cmdline"] == ["root=/dev/sda", "quiet"]
    assert facts["reboot"] == ["kernel 6.12.9+deb13-amd64 runs, 6.12.117+deb13-amd64 is installed"]
    assert system.kernel_facts(FakeRun(tmp_path, container=True))["reboot"] == []
    assert system.kernel_facts(FakeRun(tmp_path, {"target": "image"}))["reboot"] == []


def test_another_flavour_of_the_same_kernel_is_no_reason(tmp_path: Path) -> None:
    both = ["6.12.117+deb13-amd64", "6.12.117+deb13-cloud-amd64"]
    kernel_tree(tmp_path, both[1], both, both)
    assert system.kernel_facts(FakeRun(tmp_path))["reboot"] == []


def test_modules_that_are_gone_and_what_the_system_itself_says(tmp_path: Path) -> None:
    kernel_tree(tmp_path, "6.1.0-28-amd64", ["6.1.0-28-amd64"], ["6.1.0-27-amd64"])
    lay(tmp_path, {"/run/reboot-required": "", "/run/reboot-required.pkgs": "libc6\nlinux-base\nlibc6\n"})
    assert system.kernel_facts(FakeRun(tmp_path))["reboot"] == [
        "the modules of the running kernel 6.1.0-28-amd64 are gone", "/run/reboot-required: libc6, linux-base",
    ]  # fmt: skip


def test_sysctls(tmp_path: Path) -> None:
    lay(tmp_path, {"/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n", "/proc/sys/vm/x": "1\n",
                   "/proc/sys/net/ipv4/conf/eth0.100/rp_filter": "2\n"})  # fmt: skip
    (tmp_path / "proc/sys/vm/x").chmod(0o444)
    keys = ["net.ipv4.tcp_rmem", "vm.x", "net.ipv4.conf.eth0/100.rp_filter", "vm.none"]
    assert system.sysctl_facts(FakeRun(tmp_path, {"sysctls": keys})) == {
        "net.ipv4.tcp_rmem": {"value": "4096 131072 6291456", "writable": True},
        "vm.x": {"value": "1", "writable": False},
        "net.ipv4.conf.eth0/100.rp_filter": {"value": "2", "writable": True},
        "vm.none": {"absent": True},
    }


def test_the_real_proc_can_be_read() -> None:
    """/proc/sys refuses large buffers: for a while every sysctl was `absent`."""
    assert (Run().read("/proc/sys/kernel/osrelease") or "").strip() == os.uname().release
    assert system.sysctl_facts(Run(want={"sysctls": ["kernel.ostype"]}))["kernel.ostype"]["value"] == "Linux"


def test_modules_with_parameters_and_blacklists(tmp_path: Path) -> None:
    kernel_tree(tmp_path, "6.1", [], [])
    lay(tmp_path, {
        "/lib/modules/6.1/modules.builtin": "kernel/fs/ext4.ko\nkernel/a/nvme-core.ko\n",
        "/sys/module/mlx5_core/parameters/prof_sel": "3\n",
        "/etc/modprobe.d/x.conf": "# blacklist ext4\nblacklist nouveau\ninstall nouveau /bin/false\n",
        "/usr/lib/modprobe.d/y.conf": "install nouveau /bin/true\n",
        "/proc/cmdline": "quiet module_blacklist=nouveau,foo\n",
    })  # fmt: skip
    facts = system.module_facts(FakeRun(tmp_path, {"modules": ["mlx5-core", "nouveau", "nvme_core", "ext4"]}))
    assert facts["mlx5-core"] == {"loaded": True, "parameters": {"prof_sel": "3"}, "blacklisted_by": []}
    assert facts["nouveau"] == {
        "loaded": False, "parameters": {},
        "blacklisted_by": ["/etc/modprobe.d/x.conf", "/usr/lib/modprobe.d/y.conf", "kernel command line"],
    }  # fmt: skip
    assert facts["nvme_core"]["loaded"] and facts["ext4"]["blacklisted_by"] == []


# systemctl show of systemd 257 in a lab node (nspawn, Debian 13): three units, the second of them an alias
SHOW = """Result=success
LoadState=loaded
ActiveState=inactive
SubState=dead
UnitFileState=enabled
ConditionResult=no
ConditionTimestampMonotonic=512345

LoadState=loaded
Result=success
ActiveState=active
SubState=running
UnitFileState=enabled
ConditionResult=yes
ConditionTimestampMonotonic=522222

LoadState=not-found
Result=success
ActiveState=inactive
SubState=dead
UnitFileState=
ConditionResult=no
ConditionTimestampMonotonic=0
"""


def test_units_are_told_apart_by_their_order(tmp_path: Path) -> None:
    want = {"units": ["chrony.service", "sshd.service", "nope.service"]}
    run = FakeRun(tmp_path, want, commands={"systemctl show": Result(0, SHOW, "")})
    facts = units.unit_facts(run)
    assert facts["chrony.service"] == {
        "load": "loaded", "state": "enabled", "active": "inactive", "sub": "dead", "result": "success",
        "condition": False,
    }  # fmt: skip
    assert facts["sshd.service"]["condition"] is True and facts["sshd.service"]["active"] == "active"
    assert facts["nope.service"]["load"] == "not-found" and facts["nope.service"]["condition"] is None
    short = FakeRun(tmp_path, want, commands={"systemctl show": Result(0, SHOW.split("\n\n")[0], "")})
    with pytest.raises(RuntimeError, match="1 answers for 3"):
        units.unit_facts(short)


def test_units_of_an_image_by_their_links(tmp_path: Path) -> None:
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    (tmp_path / "etc/systemd/system/apt-daily.timer").symlink_to("/dev/null")
    commands = {
        f"systemctl --root={tmp_path} is-enabled -- ssh.service": Result(0, "enabled\n", ""),
        f"systemctl --root={tmp_path} is-enabled -- none.service": Result(4, "not-found\n", ""),
        f"systemctl --root={tmp_path} is-enabled -- older.service": Result(1, "", "Failed to get unit file state"),
    }
    names = ["apt-daily.timer", "ssh.service", "none.service", "older.service"]
    facts = units.unit_facts(FakeRun(tmp_path, {"target": "image", "units": names}, commands=commands))
    assert [(one["load"], one["state"]) for one in facts.values()] == [
        ("masked", "masked"), ("loaded", "enabled"), ("not-found", ""), ("not-found", ""),
    ]  # fmt: skip


def test_failed_units(tmp_path: Path) -> None:
    out = "nvidia-persistenced.service loaded failed failed NVIDIA Persistence Daemon\n"
    assert units.failed_units(FakeRun(tmp_path, commands={"systemctl list-units": Result(0, out, "")})) == [
        "nvidia-persistenced.service"
    ]
    with pytest.raises(RuntimeError):
        units.failed_units(FakeRun(tmp_path))


def test_what_cant_be_read_is_an_error_not_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path, {"/etc/a": "x"})

    def refuse(path: str, *_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    facts = files.file_facts(FakeRun(tmp_path, {"files": {"/etc/a": "0" * 64}}))["/etc/a"]
    assert facts["type"] == "file" and facts["error"] == "Permission denied" and "sha256" not in facts


def test_files_that_no_role_promises_any_more(tmp_path: Path) -> None:
    head = "# Managed by goldsmith, role kernel: edits are found by `goldsmith audit`.\n"
    lay(tmp_path, {
        "/etc/sysctl.d/90-goldsmith-kernel.conf": head + "vm.swappiness = 1\n",
        "/etc/sysctl.d/99-sysctl.conf": "vm.swappiness = 1\n",
        "/etc/apt/apt.conf.d/90goldsmith": "// no header\n",
        "/etc/apt/apt.conf.d/90goldsmith-more.goldsmith-new": "",
        "/etc/apt/preferences.d/90-goldsmith": head,
        "/etc/apt/preferences.d/90-goldsmith.goldsmith-new": head,
        "/etc/systemd/system/a.service.d/90-goldsmith.conf": "[Unit]\n",
        "/etc/systemd/system/a.service.d/override.conf": head,
        "/etc/goldsmith/motd.conf": "#!/bin/sh\n" + head.replace("kernel", "motd"),
        "/etc/goldsmith/notes": "Managed by hand\n" * 9 + head,
        "/etc/apt/keyrings/goldsmith.asc": "key\n",
    })  # fmt: skip
    (tmp_path / "etc/modprobe.d/goldsmith-folder").mkdir(parents=True)
    (tmp_path / "etc/modprobe.d/90-goldsmith-link.conf").symlink_to("/none")
    facts = files.stale_facts(FakeRun(tmp_path, {"files": {"/etc/apt/preferences.d/90-goldsmith": None}}))
    assert {path: one["role"] for path, one in facts["stale"].items()} == {
        "/etc/sysctl.d/90-goldsmith-kernel.conf": "kernel",
        "/etc/apt/apt.conf.d/90goldsmith": "",
        "/etc/apt/apt.conf.d/90goldsmith-more.goldsmith-new": "",
        "/etc/systemd/system/a.service.d/90-goldsmith.conf": "",
        "/etc/goldsmith/motd.conf": "motd",
        "/etc/modprobe.d/90-goldsmith-link.conf": "",
    }
    assert facts["pending"] == []
    # nobody said what is promised: nothing is stale
    assert files.stale_facts(FakeRun(tmp_path))["stale"] == {}


def test_reloads_that_are_due(tmp_path: Path) -> None:
    lay(tmp_path, {"/var/lib/goldsmith/pending/initramfs": "", "/var/lib/goldsmith/pending/grub": ""})
    assert files.stale_facts(FakeRun(tmp_path, {"files": {}})) == {"stale": {}, "pending": ["grub", "initramfs"]}
