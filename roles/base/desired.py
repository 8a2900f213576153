"""What every node has: the lock's packages, the pool as the only source, and nothing that changes them unasked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from goldsmith import FAMILIES, MANAGED, File, GoldsmithError, Lock, Node, Resource, Unit, template

TEMPLATES = Path(__file__).parent / "templates"
KEYRING = "/etc/apt/keyrings/goldsmith.asc"
NR_OPEN = 1048576
HOST_KEYS = "goldsmith-ssh-host-keys.service"
WAIT_ONLINE = "systemd-networkd-wait-online.service"
# apt-daily.service is what the timers start: masked too, so that a running transaction isn't met by it
# (kubernetes-sigs/image-builder#2058)
AUTOMATIC = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "apt-daily.service",
    "apt-daily-upgrade.service",
    "unattended-upgrades.service",
)


def desired(node: Node, lock: Lock) -> Iterator[Resource]:
    yield from lock.every_package()
    url, nofile, timeout = node["base_pool_url"], node["base_nofile"], node["base_apt_lock_timeout"]
    if not re.fullmatch(r"(https?|file):/\S*", url):
        raise GoldsmithError(f"base_pool_url isn't a URL: {url!r}", hint="e.g. http://HOST:8642/")
    if not 1024 <= nofile <= NR_OPEN:
        raise GoldsmithError(
            f"base_nofile is {nofile}", hint=f"1024 to {NR_OPEN}: above the kernel's fs.nr_open nobody can log in"
        )
    pool = lock.pool
    yield _before("/etc/apt/sources.list.d/goldsmith.sources", "goldsmith.sources", pool=pool, url=url, keyring=KEYRING)
    yield File(KEYRING, pool.key, before_packages=True)
    # the first record that names a package decides, not the last (docs/the-package-transaction.md): so the name sorts
    # before others'
    pins = {"pool": pool, "versions": pinned_versions(lock), "sources": family_sources(lock)}
    yield _before("/etc/apt/preferences.d/00-goldsmith", "preferences", **pins)
    families = "".join(f"{one.name} {one.family}\n" for one in lock.packages.values() if one.family)
    yield File(FAMILIES, _header() + families)
    yield _before("/etc/apt/apt.conf.d/90goldsmith", "apt.conf", timeout=timeout)
    # a second source is how a same-named, higher package came to working clusters (aws/aws-parallelcluster#3034,
    # NVIDIA/nvtrust#55)
    none = _header() + "# goldsmith.sources is the one source.\n"
    yield File("/etc/apt/sources.list", none, before_packages=True)
    # … and where Debian's installer and cloud images write them
    yield File("/etc/apt/sources.list.d/debian.sources", none, before_packages=True)
    yield _before("/etc/needrestart/conf.d/90-goldsmith.conf", "needrestart.conf")
    for name in AUTOMATIC:
        yield Unit(name, "masked", before_packages=True)
    yield Unit("chrony.service", "enabled")
    yield File(f"/etc/systemd/system/{HOST_KEYS}", _text("ssh-host-keys.service"))
    yield Unit(HOST_KEYS, "enabled")
    if "cloud-init" in lock.packages:
        # it would write Debian's own sources.list beside the pool
        yield File("/etc/cloud/cloud.cfg.d/95-goldsmith.cfg", _text("cloud.cfg"))
    if node["base_dhcp"]:
        yield from _dhcp(lock)
    yield File("/etc/security/limits.d/90-goldsmith.conf", _text("limits.conf", nofile=nofile))
    yield File("/etc/systemd/system.conf.d/90-goldsmith.conf", _text("system.conf", nofile=nofile))


def _dhcp(lock: Lock) -> Iterator[Resource]:
    """Every wired interface that nothing else configures asks for an address."""
    # by its name the last one: any other file of /etc or /usr that matches an interface wins (systemd.network(5))
    yield File("/etc/systemd/network/99-goldsmith-dhcp.network", _text("dhcp.network"))
    yield File(f"/etc/systemd/system/{WAIT_ONLINE}.d/90-goldsmith.conf", _text("wait-online.conf"))
    yield Unit("systemd-networkd.service", "enabled")
    if "systemd-resolved" in lock.packages:
        # networkd hands the servers that DHCP names to resolved, and to nobody else
        yield Unit("systemd-resolved.service", "enabled")


def pinned_versions(lock: Lock) -> list[tuple[str, str]]:
    """(version, the packages that have it, separated by blanks)."""
    packages: dict[str, list[str]] = {}
    for one in lock.packages.values():
        packages.setdefault(one.version, []).append(one.name)
    return [(version, " ".join(sorted(names))) for version, names in sorted(packages.items())]


def family_sources(lock: Lock) -> list[str]:
    """The source packages that the families are built from."""
    return sorted({one.source for one in lock.packages.values() if one.family})


def _before(path: str, name: str, **values: Any) -> File:
    return File(path, _text(name, **values), before_packages=True)


def _text(name: str, **values: Any) -> str:
    return template(TEMPLATES / f"{name}.j2", header=_header(), **values)


def _header() -> str:
    return MANAGED.format(role="base")
