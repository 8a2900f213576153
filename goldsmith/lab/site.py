"""A site that is a lab: its inventory's variable `lab`, and its hosts' addresses, as LabSettings."""

from __future__ import annotations

from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.inventory.site import Site
from goldsmith.lab.settings import LabSettings, lab_settings


def settings_of(site: Site, root: Path) -> LabSettings:
    """The settings of the lab that a site describes. root: the project's state directory."""
    data = site.variables(site.names[0]).get("lab")
    if not isinstance(data, dict):
        raise GoldsmithError(
            "this site isn't a lab: it has no variable `lab`",
            where=site.path,
            hint="inventories/lab/group_vars/all.yml shows one; its machines, if real, need no `goldsmith lab`",
        )
    nodes = {name: str(site.variables(name).get("ansible_host", "")) for name in site.names}
    return lab_settings(data, nodes, root, site.path)


def image_of_lab(site: Site) -> str:
    """The one image that all nodes of the lab are made from."""
    images = {str(site.variables(name).get("goldsmith_image", "")) for name in site.names}
    if len(images) != 1 or "" in images:
        raise GoldsmithError(
            f"a lab's nodes have one image, these have {', '.join(sorted(images)) or 'none'}",
            where=f"{site.path}, goldsmith_image",
        )
    return images.pop()
