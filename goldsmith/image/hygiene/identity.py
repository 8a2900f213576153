"""What makes one machine that machine, found by what it looks like.

goldsmith.image.identity removes by a list; these rules share nothing with it, or both would miss the same file.
Cloned ids and keys: chef/bento#1421, geerlingguy/packer-boxes#75.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from goldsmith.image.hygiene.rule import Expected, Rule, View, is_file, is_folder, is_link, name_of

_HOST_KEY = re.compile(r"ssh_host_.*_key.*|dropbear_.*_host_key.*")
_SEED = re.compile(r"random[-_]seed|credential\.secret")
_LEASE = re.compile(r".*\.leases?|lease[-_.].*|.*-lease|duid|dhcpcd\.duid|seen-bssids|timestamps|secret_key")
_NETWORKS = ("dhcp", "dhcpcd", "dhclient", "NetworkManager", "connman", "wicked", "netif", "network", "systemd")
_INTERFACES = re.compile(
    r"/etc/(netplan/50-cloud-init\.yaml|network/interfaces\.d/50-cloud-init(\.cfg)?|"
    r"udev/rules\.d/70-persistent-(net|cd)\.rules|cloud/cloud\.cfg\.d/.*-(datasource|installer|subiquity).*\.cfg)"
)


def _machine_id(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    path = "/etc/machine-id"
    entry = view.entries.get(path)
    if entry is None:
        yield (
            path,
            "isn't there: systemd takes the first boot for an unconfigured machine's and enables all units",
        )
    elif not is_file(entry) or entry.stat.st_size:
        yield path, "isn't an empty file"
    path = "/var/lib/dbus/machine-id"
    entry = view.entries.get(path)
    if entry is not None and not (is_link(entry) and entry.link == "/etc/machine-id"):
        yield path, "is there"


def _host_keys(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.below("/etc", "/var/lib", "/root", "/home"):
        if _HOST_KEY.fullmatch(name_of(entry)) and not is_folder(entry):
            yield entry.path, "is there"


def _seeds(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.below("/etc", "/var", "/boot", "/efi"):
        if _SEED.fullmatch(name_of(entry)) and not is_folder(entry):
            yield entry.path, "is there"


def _cloud_init(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.below("/var/lib/cloud"):
        if not is_folder(entry) and entry.path not in expected.files:
            yield entry.path, "is there"


def _network(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.below("/var/lib", "/etc"):
        if not is_file(entry) or entry.path in expected.files or "/dpkg/" in entry.path:
            continue
        below = entry.path.split("/")[2:-1]
        kept = _LEASE.fullmatch(name_of(entry)) and any(one in _NETWORKS for one in below)
        if kept or name_of(entry) in ("duid", "dhcpcd.duid") or _INTERFACES.fullmatch(entry.path):
            yield entry.path, "is there"


def _names(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for path in ("/etc/hostname", "/etc/machine-info", "/etc/mailname"):
        if path in view.entries and path not in expected.files:
            yield path, "is there, and no role promises it"


def _storage(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for path in ("/etc/nvme/hostid", "/etc/nvme/hostnqn", "/etc/multipath/wwids", "/etc/multipath/bindings",
                 "/etc/zfs/zpool.cache", "/etc/lvm/devices/system.devices", "/etc/blkid.tab"):  # fmt: skip
        if view.lines(path) and path not in expected.files:
            yield path, "is there"
    path = "/etc/iscsi/initiatorname.iscsi"  # the package's own says GenerateName=yes
    if path not in expected.files and any(line.startswith("InitiatorName=") for line in view.lines(path)):
        yield path, "names an initiator"
    for entry in view.below("/etc/initramfs-tools"):
        # a boot waits 30 s for the builder's swap
        for line in view.lines(entry.path):
            if re.match(r"RESUME=(?!none\b|auto\b)\S", line) and entry.path not in expected.files:
                yield entry.path, "resumes from the building machine's swap"


RULES = (
    Rule("machine-id", "/etc/machine-id is an empty file, so that every node makes its own: two with one id get one "
         "DHCP lease", "identity.strip in goldsmith/image empties it: find what wrote it afterwards", _machine_id),
    Rule("ssh-host-key", "no host key is in the image: all nodes would have it, and whoever has the image could be any "
         "of them", "find the role or package that makes it; a key is made at a node's first boot", _host_keys),
    Rule("random-seed", "no random seed is in the image: all nodes would begin with the same randomness",
         "remove it in the role that leaves it, or in goldsmith/image/identity.py", _seeds),
    Rule("cloud-init", "cloud-init has run nowhere yet: with an instance in the image it takes a node for that",
         "`cloud-init clean` in the role that starts it, or promise the seed as a File", _cloud_init),
    Rule("network-identity", "no DHCP lease, DUID or interface of another machine: two nodes with one DUID get one "
         "address", "remove it in the role that leaves it, or promise it as a File", _network),
    Rule("hostname", "no name of a machine: a node gets its own", "remove it, or promise it as a File", _names),
    Rule("storage-identity", "no NVMe host id, iSCSI initiator, disk list or swap of another machine: storage would "
         "take all nodes for one", "remove it, or promise it as a File", _storage),
)  # fmt: skip
