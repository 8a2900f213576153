"""The lab's bridge: a network that leads nowhere but to this machine and its nodes. No masquerade, no default
route.

The bridge carries an alias that names its lab, so that nobody else's bridge is ever changed or removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from typing import Any

from goldsmith import process
from goldsmith.errors import GoldsmithError
from goldsmith.lab.settings import LabSettings


def alias(settings: LabSettings) -> str:
    """What the bridge says of itself: whose it is. The kernel keeps at most 255 characters."""
    return f"goldsmith {settings.state}"[:250]


def check(settings: LabSettings) -> bool:
    """Whether the lab's bridge is there already.

    Raises GoldsmithError if the name is another's interface or the network is routed elsewhere on this machine.
    """
    existing = find(_json(["ip", "-json", "-details", "link", "show"]), settings)
    routes = _json(["ip", "-json", "-4", "route", "show", "table", "all"])
    if taken := conflict(routes, settings.network, settings.bridge):
        raise GoldsmithError(
            f"the lab's network {settings.network} is already routed here: {taken}",
            hint="give the lab another network: lab.controller and the nodes' addresses in the inventory",
        )
    return existing


def up(settings: LabSettings) -> bool:
    """See that the bridge is there with the controller's address; True if it was made now. Raises as `check`."""
    existing = check(settings)
    bridge, address = settings.bridge, str(settings.controller)
    if not existing:
        _ip("link", "add", "name", bridge, "type", "bridge")
    try:
        _ip("link", "set", "dev", bridge, "alias", alias(settings), "up")
        # replace: the same again is no error
        _ip("address", "replace", address, "dev", bridge)
    except BaseException:
        if not existing:
            down(settings)
        raise
    return not existing


def down(settings: LabSettings) -> bool:
    """Remove the lab's bridge; False if there was none. Another's interface of that name is left alone."""
    links = _json(["ip", "-json", "-details", "link", "show"])
    named = next((link for link in links if link.get("ifname") == settings.bridge), None)
    if named is None or named.get("ifalias", alias(settings)) != alias(settings):
        return False
    _ip("link", "delete", "dev", settings.bridge, "type", "bridge")
    return True


def find(links: Iterable[Mapping[str, Any]], settings: LabSettings) -> bool:
    """Whether the lab's bridge is among `links` (of `ip -json -details link`). Raises if the name is
    another's.
    """
    for link in links:
        if link.get("ifname") != settings.bridge:
            continue
        kind = link.get("linkinfo", {}).get("info_kind")
        if kind == "bridge" and link.get("ifalias") == alias(settings):
            return True
        owner = link.get("ifalias") or kind or "an interface that goldsmith didn't make"
        raise GoldsmithError(
            f"the interface {settings.bridge} is already there and isn't lab {settings.name}'s ({owner})",
            hint="give the lab another bridge: lab.bridge in the inventory; or end the lab that has it",
        )
    return False


def conflict(routes: Iterable[Mapping[str, Any]], network: IPv4Network, bridge: str) -> str:
    """A route of another interface that overlaps `network`, in words; empty if there is none.

    The default route doesn't count: everything overlaps it.
    """
    for route in routes:
        destination = str(route.get("dst", "default"))
        if destination == "default" or route.get("dev") == bridge or route.get("type") == "multicast":
            continue
        try:
            other = IPv4Network(destination, strict=False)
        except ValueError:
            continue
        if other.prefixlen > 0 and other.overlaps(network):
            return f"{destination} by {route.get('dev', route.get('type', 'a route'))}"
    return ""


def _json(argv: list[str]) -> list[dict[str, Any]]:
    out = process.run(argv, timeout=20, what="look at this machine's network").out
    # `ip` prints {} for "nothing here"
    return [one for one in json.loads(out or "[]") if one]


def _ip(*words: str) -> None:
    process.run(["ip", *words], timeout=20, what=f"set up the lab's network ({' '.join(words)})")
