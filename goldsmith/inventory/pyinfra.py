"""A site as a pyinfra inventory: what inventories/NAME.py hands to `pyinfra inventories/NAME.py deploy.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from goldsmith.inventory.site import load_site

Hosts = list[tuple[str, dict[str, Any]]]


def pyinfra_groups(folder: Path) -> dict[str, Hosts | list[str]]:
    """group → hosts in pyinfra's form; `all` carries the data.

    The data is what connecting takes and where the node's variables are found; the variables themselves are
    read and checked only for hosts that a run touches (goldsmith.converge.host), so that `--limit` stays fast
    and no secret lies in pyinfra's host data, which `pyinfra --json` and `debug-inventory` print.
    """
    site = load_site(folder)
    hosts: Hosts = [(f"@goldsmith/{name}", {"goldsmith_site": str(site.folder)}) for name in site.names]
    groups: dict[str, Hosts | list[str]] = {"all": hosts}
    for group, names in site.groups.items():
        if group.isidentifier():
            groups[group] = [f"@goldsmith/{name}" for name in names]
    return groups
