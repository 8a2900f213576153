"""Each rule of hygiene: what breaks it, and what nearly does."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from goldsmith.image.hygiene import CHECKS, RULES, packages, told
from goldsmith.image.hygiene.rule import READ_LIMIT, Expected, View
from goldsmith.image.tree import Tree
from goldsmith.model.finding import Finding
from tests.unit.tree_fake import FOLDER, FakeTree, Node, device, file, folder, link

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n-----END OPENSSH PRIVATE KEY-----\n"
# in pieces, or whoever scans this repository for keys finds them
AWS = "AKIA" + "ABCDEFGHIJKLMNOP"
GITHUB = "ghp" + "_" + "a1" * 18
HASH = "$y$j9T$abc$def"
CLEAN: Mapping[str, str | Node] = {
    "/etc/machine-id": "",
    "/etc/passwd": "root:x:0:0:root:/root:/bin/bash\n_apt:x:42:65534::/:/bin/false\n",
    "/etc/group": "root:x:0:\nshadow:x:42:\n_ssh:x:101:\n",
    "/etc/shadow": "root:*:20000:0:99999:7:::\nsshd:!*:20000::::::\n",
    "/etc/gshadow": "root:*::\n_ssh:!::\nusers:::\n",
    "/tmp": folder(0o1777),
    "/var/tmp": folder(0o1777),
    "/var/lib/dpkg/info/sudo.list": "/.\n/usr/bin/sudo\n",
    "/var/lib/dpkg/info/passwd.list": "/usr/bin/chage\n/usr/bin/passwd\n",
    "/var/lib/dpkg/info/util-linux.list": "/bin/su\n",
    "/var/lib/dpkg/info/iputils-ping.list": "/usr/bin/ping\n",
    "/usr/lib/systemd/system/ssh.service": "[Unit]\n",
    "/usr/lib/systemd/system/getty@.service": "[Unit]\n",
}
EXPECTED = Expected(
    "lab", files={"/etc/hostname", "/etc/apt/sources.list", "/etc/mdadm/mdadm.conf", "/root/.ssh/authorized_keys"},
    enabled={"nvlsm.service"}, packages={"sudo", "passwd", "iputils-ping"}, privileged={"/opt/x/helper"},
    builder=("factory-7", "vm", "/srv/build/checkout"),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """breaks: trees, each of which the rule finds something in. nearly: one that it finds nothing in."""

    rule: str
    breaks: Sequence[Mapping[str, str | Node | None]]
    nearly: Mapping[str, str | Node] = field(default_factory=dict)


CASES = (
    Case("machine-id", [
        {"/etc/machine-id": "0123456789abcdef0123456789abcdef\n"}, {"/etc/machine-id": "uninitialized\n"},
        {"/etc/machine-id": None}, {"/etc/machine-id": link("/var/lib/dbus/machine-id")},
        {"/var/lib/dbus/machine-id": ""},
    ], {"/var/lib/dbus/machine-id": link("/etc/machine-id")}),
    Case("ssh-host-key", [
        {"/etc/ssh/ssh_host_ed25519_key": "x"}, {"/etc/ssh/ssh_host_rsa_key.pub": "x"},
        {"/etc/dropbear/dropbear_rsa_host_key": "x"}, {"/etc/ssh/keys/ssh_host_rsa_key": link("/x")},
    ], {"/etc/ssh/ssh_config": "HostKey /etc/ssh/ssh_host_rsa_key\n", "/usr/share/x/ssh_host_rsa_key": "a test's"}),
    Case("random-seed", [
        {"/var/lib/systemd/random-seed": "x"}, {"/var/lib/urandom/random-seed": "x"}, {"/boot/loader/random-seed": "x"},
        {"/var/lib/systemd/credential.secret": "x"},
    ], {"/var/lib/random-seed.d/x": "x"}),
    Case("cloud-init", [
        {"/var/lib/cloud/instances/i-1/boot-finished": "x"}, {"/var/lib/cloud/instance": link("instances/i-1")},
    ], {"/var/lib/cloud/instances": FOLDER, "/etc/cloud/cloud.cfg": "x"}),
    Case("network-identity", [
        {"/var/lib/dhcp/dhclient.eth0.leases": "x"}, {"/var/lib/NetworkManager/internal-1-eth0.lease": "x"},
        {"/var/lib/dhcpcd/duid": "x"}, {"/etc/netplan/50-cloud-init.yaml": "x"},
        {"/etc/udev/rules.d/70-persistent-net.rules": "x"},
    ], {"/var/lib/x/terms-of-lease": "x", "/etc/netplan/10-dhcp.yaml": "x", "/var/lib/dhcp/x": "x",
        "/var/lib/dhcp/old.leases.d": FOLDER}),
    Case("hostname", [{"/etc/machine-info": "x"}, {"/etc/mailname": "x"}], {"/etc/hostname": "promised\n"}),
    Case("storage-identity", [
        {"/etc/nvme/hostid": "x"}, {"/etc/iscsi/initiatorname.iscsi": "InitiatorName=iqn.1993-08.org.debian:01:1\n"},
        {"/etc/initramfs-tools/conf.d/resume": "RESUME=UUID=1\n"}, {"/etc/multipath/wwids": "/3600/\n"},
    ], {"/etc/iscsi/initiatorname.iscsi": "GenerateName=yes\n", "/etc/initramfs-tools/conf.d/resume": "RESUME=none\n",
        "/etc/multipath/wwids": "# Multipath wwids, Version : 1.0\n"}),
    Case("log", [
        {"/var/log/dpkg.log": "x"}, {"/var/log/journal/1/system.journal": ""}, {"/var/lib/dkms/x/1/log/make.log": "x"},
    ], {"/var/log/apt": FOLDER, "/var/log/wtmp": "", "/var/log/README": link("/usr/share/doc/systemd/README.logs")}),
    Case("history", [
        {"/root/.bash_history": "x"}, {"/home/a/.python_history": "x"}, {"/var/lib/postgresql/.psql_history": "x"},
        {"/root/.lesshst": "x"}, {"/root/.wget-hsts": "x"}, {"/root/.history": "x"},
    ], {"/usr/share/x/.bash_history": "x", "/root/history": "x", "/root/.bashrc": "x"}),
    Case("apt-cache", [
        {"/var/lib/apt/lists/x_Packages": "x"}, {"/var/cache/apt/archives/a.deb": "x"},
        {"/var/cache/apt/pkgcache.bin": "x"}, {"/var/cache/apt/archives/partial/b.deb": "x"},
    ], {"/var/lib/apt/lists/lock": "", "/var/lib/apt/lists/partial": FOLDER, "/var/cache/apt/archives/lock": ""}),
    Case("temporary", [
        {"/tmp/x": "x"}, {"/var/tmp/.a/b": link("/x")}, {"/run/x.pid": "1"}, {"/var/cache/goldsmith/apt-1/log": "x"},
    ], {"/run/lock": FOLDER, "/var/tmpfiles": "x"}),
    Case("policy-rc.d", [{"/usr/sbin/policy-rc.d": "x"}], {
        "/usr/sbin/policy-rc.d": "x", "/var/lib/dpkg/info/policyrcd-script-zg2.list": "/usr/sbin/policy-rc.d\n"}),
    Case("apt-source", [
        {"/etc/apt/sources.list.d/cuda.list": "deb https://x/ /"}, {"/etc/apt/sources.list.d/x.sources": "Types: deb"},
        {"/etc/apt/apt.conf.d/01proxy": 'Acquire::http::Proxy "http://cache:3142";\n'},
        {"/etc/environment": "https_proxy=http://proxy:3128\n"},
    ], {"/etc/apt/sources.list": "deb promised\n", "/etc/apt/sources.list.d/x.list": "# deb https://x/ /\n",
        "/etc/apt/apt.conf.d/x": '// Acquire::http::Proxy "x";\n', "/etc/apt/sources.list.d/x.list.save": "deb x\n"}),
    Case("resolver", [{"/etc/resolv.conf": "nameserver 192.0.2.1\n"}], {
        "/etc/resolv.conf": link("../run/systemd/resolve/stub-resolv.conf")}),
    Case("builder", [
        {"/etc/x.conf": "server factory-7 here\n"}, {"/etc/hosts": "127.0.1.1 vm"}, {"/etc/y": "/srv/build/checkout/z"},
    ], {"/etc/hosts": "127.0.0.1 localhost\n", "/etc/x.conf": "vm = 1, factory-77, my-factory-7\n"}),
    Case("secret-file", [
        {"/etc/munge/munge.key": "\x01"}, {"/etc/ssl/private/ssl-cert-snakeoil.key": "x"}, {"/root/.ssh/id_rsa": "x"},
        {"/home/a/x.p12": "x"}, {"/etc/krb5.keytab": "x"}, {"/var/lib/dkms/mok.key": "x"},
        {"/etc/munge/munge.key": link("/root/key")}, {"/root/.gnupg/private-keys-v1.d/A.key": "x"},
    ], {"/etc/ssl/private": FOLDER, "/etc/munge/README": "x", "/root/.ssh/known_hosts": "x", "/usr/x.p12": "x"}),
    Case("secret", [
        {"/etc/x.pem": KEY}, {"/opt/x/sa.json": '{"key": "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w\\n"}'},
        {"/etc/apt/sources.list": KEY},  # a role's promise excuses no key
        {"/root/x": "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEpAIBAAKCAQEA0\n"},
        {"/etc/x": f"key = {AWS}\n"}, {"/root/.config/gh": f"# {GITHUB}\n"}, {"/home/a/.netrc": "machine x password y"},
        {"/root/.docker/config.json": '{"auths": {"x": {"auth": "eDp5"}}}'}, {"/etc/pip.conf": "u = https://a:b@x/simple"},
        {"/etc/apt/auth.conf.d/x.conf": "machine x password z\n"}, {"/root/.cache/huggingface/token": "abcdefghij"},
        {"/etc/ceph/a.keyring": "key = AQ==\n"}, {"/root/.kube/config": "client-key-data: LS0t\n"},
    ], {
        "/etc/ssl/certs/x.pem": "-----BEGIN CERTIFICATE-----\nMIIEpAIBAAKCAQEA0\n",
        "/etc/script": "grep -q -- '-----BEGIN PRIVATE KEY-----' $1\n", "/usr/share/doc/x/key.pem": KEY,
        "/opt/env/lib/python3.13/site-packages/x/test.pem": KEY, "/etc/big": KEY + "x" * READ_LIMIT,
        "/etc/wgetrc": "# https_proxy = http://user:password@proxy:1/\n", "/root/.netrc": "# password x\n",
        "/root/.docker/config.json": '{"auths": {}, "credsStore": "pass"}', "/etc/y": "https://x:8080/a@b http://${u}:${p}@x",
        "/etc/chrony/chrony.keys": "# 1 MD5 x\n",
    }),
    Case("password", [
        {"/etc/shadow": f"root:{HASH}:20000::::::\n"}, {"/etc/shadow": "root::20000::::::\n"},
        {"/etc/passwd-": "a:$1$x:0:0::/:/bin/sh\n"}, {"/etc/shadow-": f"a:!{HASH}:1::::::\n"},
        {"/etc/gshadow": f"root:{HASH}::\n"},
    ], {"/etc/passwd-": "a:x:0:0::/:/bin/sh\nb:*:0:0::/:/bin/sh\n", "/etc/shadow-": "a:!:1::::::\n"}),
    Case("authorized-keys", [
        {"/home/a/.ssh/authorized_keys": "ssh-ed25519 AAAA x\n"}, {"/root/.ssh/authorized_keys2": "ssh-rsa AAAA x\n"},
    ], {"/root/.ssh/authorized_keys": "ssh-ed25519 AAAA promised\n", "/home/a/.ssh/authorized_keys": "# none\n"}),
    Case("world-writable", [
        {"/etc/x": file(mode=0o666)}, {"/opt/x": folder(0o777)}, {"/tmp": folder(0o777)},
        {"/srv/x": Node(mode=stat.S_IFIFO | 0o622)},
    ], {"/etc/x": file(mode=0o664), "/var/crash": folder(0o1777), "/etc/l": link("/x"), "/dev/null": Node(
        mode=stat.S_IFCHR | 0o666)}),
    Case("setuid", [
        {"/usr/bin/sudo": file(mode=0o4755, owner=42)}, {"/usr/bin/sudo": file(mode=0o6755)},
        {"/usr/local/bin/sudo": file(mode=0o4755)}, {"/usr/bin/su": file(mode=0o4755)},  # of no package of the lock
        {"/usr/bin/newgrp": file(mode=0o4755)}, {"/usr/bin/chage": file(mode=0o2755, group=0)},
    ], {"/usr/bin/sudo": file(mode=0o4755), "/usr/bin/chage": file(mode=0o2755, group=42), "/var/mail": folder(0o2775),
        "/opt/x/helper": file(mode=0o4755)}),
    Case("capabilities", [{"/usr/bin/python3": file(mode=0o755, capabilities=b"x")}], {
        "/usr/bin/ping": file(mode=0o755, capabilities=b"x"), "/opt/x/helper": file(mode=0o755, capabilities=b"x")}),
    Case("device", [{"/dev/nvidia0": device()}, {"/dev/vda": device(stat.S_IFBLK)}, {"/opt/null": device()}], {
        "/dev/null": device(), "/dev/stdin": link("/proc/self/fd/0")}),
    Case("owner", [{"/opt/x": file(owner=1000)}, {"/opt/x": file(group=1000)}], {"/opt/x": file(owner=42, group=101)}),
    Case("subnet-manager", [
        {"/etc/systemd/system/multi-user.target.wants/opensm.service": link("/usr/lib/systemd/system/opensm.service")},
        {"/usr/lib/systemd/system/network.target.requires/opensmd.service": link("../opensmd.service")},
        {"/etc/systemd/system/a.target.wants/opensm@mlx5_0.service": link("../opensm@.service")},
        {"/etc/rc3.d/S01opensmd": link("../init.d/opensmd")},
        {"/usr/lib/systemd/system-preset/50-x.preset": "enable opensm.service\n"},
    ], {"/usr/lib/systemd/system/opensm.service": "x",
        "/etc/systemd/system/multi-user.target.wants/nvlsm.service": link("/usr/lib/systemd/system/nvlsm.service"),
        "/etc/systemd/system/a.target.wants/opensmd.service": link("x"),
        "/etc/systemd/system/opensmd.service": link("/dev/null"), "/etc/rc0.d/K01opensmd": link("../init.d/opensmd"),
        "/usr/lib/systemd/system-preset/50-x.preset": "disable opensm.service\n"}),
    Case("mdadm-array", [
        {"/etc/mdadm.conf": "ARRAY /dev/md0 UUID=1\n"}, {"/etc/mdadm/mdadm.conf.d/x.conf": "array /dev/md/x UUID=1\n"},
    ], {"/etc/mdadm/mdadm.conf": "ARRAY /dev/md/promised\n", "/etc/mdadm.conf": "HOMEHOST <system>\n# ARRAY /dev/md0"}),
    Case("unit-missing", [
        {"/etc/systemd/system/multi-user.target.wants/gone.service": link("/usr/lib/systemd/system/gone.service")},
        {"/etc/systemd/system/a.target.wants/gone@1.service": link("/usr/lib/systemd/system/gone@.service")},
    ], {"/etc/systemd/system/multi-user.target.wants/ssh.service": link("/lib/systemd/system/ssh.service"),
        "/etc/systemd/system/getty.target.wants/getty@tty1.service": link("/lib/systemd/system/getty@.service"),
        "/etc/systemd/system/a.target.wants/old.service": link("x"), "/etc/init.d/old": "x",
        "/usr/lib/systemd/system/a.target.wants/other-packages.service": link("../x")}),
)  # fmt: skip


def look(rule: str, more: Mapping[str, str | Node | None]) -> list[Finding]:
    files = {path: one for path, one in {**CLEAN, **more}.items() if one is not None}
    view = View(cast(Tree, FakeTree(files)))
    return next(one for one in RULES if one.id == rule).findings(view, EXPECTED)


def test_every_rule_has_a_case() -> None:
    assert [case.rule for case in CASES] == [rule.id for rule in RULES]
    assert len(set(CHECKS)) == len(CHECKS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_what_breaks_a_rule_and_what_nearly_does(case: Case) -> None:
    for tree in case.breaks:
        found = look(case.rule, tree)
        assert found, tree
        for one in found:
            assert one.check == f"hygiene.{case.rule}"
            assert one.fact in tree
            assert one.expected and one.actual and one.remedy
    assert look(case.rule, case.nearly) == []


def test_a_clean_tree_is_clean() -> None:
    assert [one for rule in RULES for one in look(rule.id, {})] == []


def test_a_secret_itself_isnt_told_and_a_name_isnt_obeyed() -> None:
    text = told(look("secret", {f"/etc/\x1b[2J\udcff{number}": f"{KEY}{AWS}" for number in range(20)}))
    assert "b3BlbnNzaC1rZXk" not in text and AWS not in text
    assert "\x1b" not in text
    text.encode()  # no half of a surrogate pair: it can be printed
    assert "more" in text and text.count("holds a") == 8


ANSWERS = """\
@goldsmith audit 0
Reading package lists...
@goldsmith update 0
@goldsmith check 0
Calculating upgrade...
0 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.
@goldsmith upgrade 0
"""


@pytest.mark.parametrize(
    ("old", "new", "check", "said"),
    [
        ("Calculating", "Inst libnccl2 [2.22] (2.23 lab)\nCalculating", packages.UPGRADE, "Inst libnccl2"),
        ("and 0 not", "and 3 not", packages.UPGRADE, "3 not upgraded"),
        ("upgrade 0", "upgrade 100", packages.UPGRADE, "not upgraded"),
        ("@goldsmith audit 0", "not configured:\n x  y\n@goldsmith audit 0", packages.BROKEN, "not configured: x y"),
        ("check 0", "check 100", packages.BROKEN, "exit code 100"),
    ],
)
def test_what_apt_and_dpkg_say(old: str, new: str, check: str, said: str) -> None:
    assert packages.judge("lab", packages.parse(ANSWERS)) == []
    assert old in ANSWERS
    found = packages.judge("lab", packages.parse(ANSWERS.replace(old, new)))
    assert [one.check for one in found] == [check]
    assert said in f"{found[0].actual}".replace("  ", " ")
