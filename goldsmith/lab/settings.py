"""What a lab is made of: its bridge, its addresses, its nodes. Plain data of the site's inventory, checked.

Two labs of different names, bridges and networks live beside each other on one machine; they share nothing
but the pool and the built images.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

from goldsmith.errors import GoldsmithError

POOL_HOST = "goldsmith-pool"  # the name under which every node finds the pool, in its /etc/hosts
_KEYS = ("name", "bridge", "controller", "pool_port")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
_NODE = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


@dataclass(frozen=True)
class LabSettings:
    """One lab.

    root:       the state directory of the project (STATE); the lab's own files are below STATE/labs/NAME.
    bridge:     name of the bridge on this machine, at most 15 characters (the kernel's limit).
    controller: this machine's address on the bridge, with the network's prefix.
    pool_port:  where the pool is served, on the controller's address.
    nodes:      name → address.
    """

    name: str
    root: Path
    bridge: str
    controller: IPv4Interface
    pool_port: int
    nodes: Mapping[str, IPv4Address]

    @property
    def state(self) -> Path:
        return self.root / "labs" / self.name

    @property
    def lock_file(self) -> Path:
        """Held (goldsmith.holding) by whoever changes the lab."""
        return self.root / "labs" / f"{self.name}.lock"

    @property
    def ssh(self) -> Path:
        """Keys, known_hosts and an ssh configuration for people."""
        return self.state / "ssh"

    @property
    def network(self) -> IPv4Network:
        return self.controller.network

    def node_dir(self, node: str) -> Path:
        return self.state / "nodes" / node

    def address(self, node: str) -> IPv4Address:
        try:
            return self.nodes[node]
        except KeyError:
            raise GoldsmithError(
                f"there is no node {node} in lab {self.name}", hint=f"nodes here: {', '.join(self.nodes)}"
            ) from None

    def machine(self, node: str) -> str:
        """The name that systemd-nspawn knows the node by, unique on this machine."""
        return f"gs-{self.name}-{node}"


def lab_settings(data: Mapping[str, Any], nodes: Mapping[str, str], root: Path, where: str) -> LabSettings:
    """Settings from an inventory's variable `lab`.

    data: {name, bridge, controller ("10.213.7.1/24"), pool_port}. nodes: name → address (ansible_host).
    root: the project's state directory. where: the file that `data` comes from, for errors.
    """
    for key in data:
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"fields here: {', '.join(_KEYS)}"
            raise GoldsmithError("no such field", where=f"{where}, lab.{key}", hint=hint)
    for key in _KEYS:
        if key not in data:
            raise GoldsmithError("is missing", where=f"{where}, lab.{key}")
    name, bridge, port = str(data["name"]), str(data["bridge"]), data["pool_port"]
    if not _NAME.fullmatch(name):
        raise GoldsmithError(
            f"a lab's name is at most 20 small letters, digits and dashes, got {name!r}",
            where=f"{where}, lab.name",
        )
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,14}", bridge):
        raise GoldsmithError(
            f"a bridge's name is at most 15 small letters, digits and dashes, got {bridge!r}",
            where=f"{where}, lab.bridge",
        )
    if not isinstance(port, int) or isinstance(port, bool) or not 1024 <= port <= 65535:
        raise GoldsmithError(f"a port from 1024 to 65535, got {port!r}", where=f"{where}, lab.pool_port")
    try:
        controller = IPv4Interface(str(data["controller"]))
    except (AddressValueError, ValueError) as error:
        raise GoldsmithError(f"not an address: {error}", where=f"{where}, lab.controller") from None
    if not controller.network.is_private or not 16 <= controller.network.prefixlen <= 29:
        raise GoldsmithError(
            f"a private network of 16 to 29 bits, got {controller}",
            where=f"{where}, lab.controller",
            hint="for example 10.213.7.1/24",
        )
    addresses = _addresses(nodes, controller, where)
    if any(character in str(root) for character in ",:\\\n\"'"):
        # overlayfs reads them as its own punctuation
        raise GoldsmithError("a state directory's path has no comma, colon, quote or backslash", where=str(root))
    return LabSettings(name, root, bridge, controller, port, addresses)


def _addresses(nodes: Mapping[str, str], controller: IPv4Interface, where: str) -> dict[str, IPv4Address]:
    if not nodes:
        raise GoldsmithError("the lab has no nodes", where=where, hint="put hosts into its group `nodes`")
    addresses: dict[str, IPv4Address] = {}
    taken = {controller.ip: "the controller"}
    for node, text in nodes.items():
        field = f"{where}, {node}.ansible_host"
        if not _NODE.fullmatch(node):
            raise GoldsmithError(f"not a host name of at most 40 characters: {node!r}", where=where)
        try:
            address = IPv4Address(str(text))
        except ValueError:
            raise GoldsmithError(f"not an address: {text!r}", where=field) from None
        if address not in controller.network:
            raise GoldsmithError(f"{address} isn't in the lab's network {controller.network}", where=field)
        if address in taken:
            raise GoldsmithError(f"{address} is {taken[address]}'s already", where=field)
        taken[address] = node
        addresses[node] = address
    return addresses
