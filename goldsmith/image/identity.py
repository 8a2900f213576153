"""What must not be in an image: everything that makes one machine that machine, and what a build leaves
behind.

Two nodes with one machine-id get one DHCP lease and one journal; two with one ssh host key are one host to
every client; two with one random seed begin with the same randomness.
"""

from __future__ import annotations

import stat
from collections.abc import Collection

from goldsmith.image.tree import Tree

# Emptied, the folders in them kept: packages own those and expect them.
_LOGS = ("/var/log",)
# Emptied, with all folders.
_EMPTIED = (
    "/tmp", "/var/tmp", "/run", "/var/lib/apt/lists", "/var/lib/dhcp", "/var/lib/dhcpcd", "/var/lib/NetworkManager",
    "/var/lib/systemd/network", "/var/lib/systemd/timesync", "/var/lib/systemd/coredump", "/var/lib/systemd/timers",
    "/var/lib/private/systemd", "/var/backups", "/root/.cache", "/root/.ansible", "/var/lib/cloud",
)  # fmt: skip
_REMOVED = (
    "/var/lib/dbus/machine-id", "/var/lib/systemd/random-seed", "/var/lib/systemd/credential.secret",
    "/var/lib/urandom/random-seed", "/boot/loader/random-seed", "/efi/loader/random-seed",
    "/boot/efi/loader/random-seed",
    "/etc/hostname", "/etc/machine-info", "/etc/mailname", "/etc/.pwd.lock",
    "/etc/iscsi/initiatorname.iscsi", "/etc/nvme/hostid", "/etc/nvme/hostnqn", "/etc/multipath/wwids",
    "/etc/multipath/bindings", "/etc/netplan/50-cloud-init.yaml", "/etc/network/interfaces.d/50-cloud-init",
    "/etc/udev/rules.d/70-persistent-net.rules",
    # what DKMS signs with if nobody gave it a key: made as the first module is built, and again where it is missing
    "/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub",
    "/var/lib/chrony/drift", "/var/lib/chrony/chrony.drift",
    "/var/lib/dpkg/lock", "/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/triggers/Lock",
    "/var/lib/dpkg/status-old", "/var/lib/dpkg/available-old", "/var/lib/dpkg/diversions-old",
    "/var/lib/dpkg/statoverride-old", "/var/cache/debconf/config.dat-old", "/var/cache/debconf/templates.dat-old",
    "/var/cache/ldconfig/aux-cache", "/var/cache/apt/pkgcache.bin", "/var/cache/apt/srcpkgcache.bin",
)  # fmt: skip
_HISTORIES = (
    ".bash_history", ".history", ".python_history", ".psql_history", ".mysql_history", ".lesshst", ".viminfo",
    ".wget-hsts", ".sudo_as_admin_successful",
)  # fmt: skip
# Homes of people and of services.
_HOMES = ("/root/", "/home/", "/srv/", "/opt/", "/var/", "/etc/")


def strip(tree: Tree, keep: Collection[str] = ()) -> None:
    """Remove machine identity and leftovers from the tree. keep: files that a role manages; they stay.

    /etc/machine-id stays as an empty file, which is not the same as a missing one or `uninitialized`: with
    those, systemd takes the boot for the first of an unconfigured machine and presets all units (on Debian:
    enables them), over whatever the roles enabled and disabled. With an empty file it makes an id and changes
    nothing else (machine-id(5), "First Boot Semantics").
    """
    for folder in _LOGS:
        tree.empty(folder, keep_folders=True)
    for folder in _EMPTIED:
        if not any(path.startswith(folder + "/") for path in keep):
            tree.empty(folder)
    for folder, ends in (("/etc/ssh", ("_key", "_key.pub")), ("/var/cache/apt/archives", (".deb",))):
        for name in tree.names(folder):
            if name.endswith(ends) and (folder != "/etc/ssh" or name.startswith("ssh_host_")):
                _remove(tree, f"{folder}/{name}", keep)
    for path in _REMOVED:
        _remove(tree, path, keep)
    for path in _scattered(tree):
        _remove(tree, path, keep)
    tree.write("/etc/machine-id", "", mode=0o444)


def _scattered(tree: Tree) -> list[str]:
    """Histories wherever a home is, and the logs that DKMS keeps beside what it built."""
    found = []
    for entry in tree.walk():
        name = entry.path.rpartition("/")[2]
        log = name.endswith(".log") and entry.path.startswith("/var/lib/dkms/")
        history = name in _HISTORIES and entry.path.startswith(_HOMES)
        if (log or history) and not stat.S_ISDIR(entry.stat.st_mode):
            found.append(entry.path)
    return found


def _remove(tree: Tree, path: str, keep: Collection[str]) -> None:
    if path not in keep:
        tree.remove(path)
