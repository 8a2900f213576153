"""What makes a node itself: laid into its writable layer before each boot. The image has none of it."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Interface

from goldsmith.image.tree import Tree
from goldsmith.lab import keys
from goldsmith.lab.settings import POOL_HOST, LabSettings

# Debian ships networkd disabled; this is what `systemctl enable` would make of it.
_ENABLE_NETWORKD = "/etc/systemd/system/multi-user.target.wants/systemd-networkd.service"
_NETWORKD = "/usr/lib/systemd/system/systemd-networkd.service"


def lay(tree: Tree, settings: LabSettings, node: str) -> None:
    """Write name, addresses and keys of `node` into its writable layer."""
    private = keys.host_key(settings, node)
    address = IPv4Interface((settings.address(node), settings.network.prefixlen))
    tree.write("/etc/hostname", f"{node}\n")
    tree.write("/etc/hosts", hosts(node, settings.nodes, settings.controller.ip))
    tree.write("/etc/systemd/network/05-host0.network", network(address))
    tree.link(_ENABLE_NETWORKD, _NETWORKD)
    tree.write(f"/etc/ssh/{keys.HOST_KEY}", private.read_bytes(), mode=0o600)
    tree.write(f"/etc/ssh/{keys.HOST_KEY}.pub", keys.public(private))
    tree.folder("/root", 0o700)
    tree.folder("/root/.ssh", 0o700)
    tree.write("/root/.ssh/authorized_keys", keys.public(settings.ssh / keys.CLIENT), mode=0o600)


def hosts(node: str, nodes: Mapping[str, IPv4Address], controller: IPv4Address) -> str:
    """/etc/hosts of `node`: itself as Debian has it (127.0.1.1), the others, and the pool."""
    others = "".join(f"{address} {name}\n" for name, address in nodes.items() if name != node)
    return (
        "127.0.0.1 localhost\n"
        f"127.0.1.1 {node}\n"
        "::1 localhost ip6-localhost ip6-loopback\n"
        f"{controller} {POOL_HOST}\n{others}"
    )


def network(address: IPv4Interface) -> str:
    """The systemd-networkd file of the node's one interface. No gateway, no DNS: the lab has no way out."""
    return (
        "[Match]\nName=host0\n\n"
        f"[Network]\nAddress={address}\nDHCP=no\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nLLMNR=no\n"
    )
