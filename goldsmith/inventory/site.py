"""A site: one inventory folder, seen as Nodes whose variables were checked against their roles' argument specs."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from goldsmith.errors import GoldsmithError
from goldsmith.inventory import ansible
from goldsmith.model.image import Image, read_image
from goldsmith.model.lock import Lock, read_lock
from goldsmith.model.node import Node, Ssh
from goldsmith.project import find_project
from goldsmith.role import Role, roles_of


class Site:
    """An inventory folder. Nodes are made when asked for, and kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = find_project(folder)
        self._inventory = ansible.Inventory(folder, _vault_password_file())
        self._nodes: dict[str, Node] = {}

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def path(self) -> str:
        """The folder as a user would type it: from the project, if it lies there."""
        if self.folder.is_relative_to(self.project):
            return str(self.folder.relative_to(self.project))
        return str(self.folder)

    @cached_property
    def names(self) -> list[str]:
        return self._inventory.names

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        return self._inventory.groups()

    def select(self, limit: str | None) -> list[str]:
        """Host names of a node set (`node[01-03,07]`) or a group, in the inventory's order; all without one.

        Never empty: a limit that selects nothing (an unset variable in a script) must not become "all nodes".
        """
        if limit is None:
            return self.names
        wanted: set[str] = set()
        for part in names_of(limit):
            wanted.update(self.names if part == "all" else self.groups.get(part, [part]))
        if unknown := sorted(wanted - set(self.names)):
            near = difflib.get_close_matches(unknown[0], [*self.names, *self.groups], n=3)
            raise GoldsmithError(
                f"--limit names {fold(unknown)}, which isn't in the inventory",
                where=self.path,
                hint=f"did you mean {' or '.join(near)}?" if near else f"it has {fold(self.names)}",
            )
        if not wanted:
            raise GoldsmithError(
                "--limit selects no node", where=f"--limit {limit!r}", hint=f"the inventory has {fold(self.names)}"
            )
        return [name for name in self.names if name in wanted]

    def node(self, name: str) -> Node:
        """The node, its variables complete and checked."""
        if name not in self._nodes:
            self._nodes[name] = self._make(name)
        return self._nodes[name]

    def variables(self, name: str) -> Mapping[str, Any]:
        """A host's variables as the inventory has them, unchecked (for what isn't a role's, such as `lab`)."""
        return self._inventory.host(name).variables

    def image(self, name: str) -> Image:
        return image_of(self.project, name)

    def lock(self, image: str) -> Lock:
        return lock_of(self.project, image)

    def roles(self, node: Node) -> list[Role]:
        return image_roles(self.project, self.image(node.image))

    def _make(self, name: str) -> Node:
        host = self._inventory.host(name)
        image_name = host.variables.get("goldsmith_image")
        if not isinstance(image_name, str):
            raise GoldsmithError(
                f"node {name} has no image",
                where=f"{self.path}, goldsmith_image",
                hint="set `goldsmith_image: NAME` in group_vars, with NAME a folder of images/",
            )
        image = self.image(image_name)
        variables = complete(image_roles(self.project, image), image, host.variables, host.origins, f"node {name}")
        return Node(name, image_name, variables, host.groups, _ssh(host))


def names_of(limit: str) -> list[str]:
    """The single names of a node set; commas and spaces part them."""
    try:
        # no resolver: `@gpu` would otherwise be looked up in this machine's own ClusterShell configuration
        return [str(one) for one in NodeSet(limit.strip().replace(" ", ","), resolver=RESOLVER_NOGROUP)]
    except NodeSetException as error:
        raise GoldsmithError(
            f"not a node set: {error}", where=f"--limit {limit}", hint="write it as node[01-03,07] or node01,node02"
        ) from None


def fold(names: Iterable[str]) -> str:
    """Names as HPC people write them: node[02,04]. Padding and order are ClusterShell's."""
    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))


@cache
def load_site(folder: Path) -> Site:
    """The site in a folder such as inventories/lab (NAME.py beside it is accepted, too)."""
    if folder.suffix == ".py":
        folder = folder.with_suffix("")
    folder = Path(os.path.abspath(folder))
    if not folder.is_dir():
        known = sorted(p.name for p in folder.parent.glob("*/hosts*")) if folder.parent.is_dir() else []
        beside = sorted({p.parent.name for p in folder.parent.glob("*/hosts*")}) if known else []
        raise GoldsmithError(
            "there is no inventory here",
            where=str(folder),
            hint=f"inventories beside it: {', '.join(beside)}" if beside else "give a folder with a hosts.yml",
        )
    return Site(folder)


@cache
def image_of(project: Path, name: str) -> Image:
    return read_image(project / "images" / name)


@cache
def lock_of(project: Path, image: str) -> Lock:
    return read_lock(project / "images" / image)


def image_roles(project: Path, image: Image) -> list[Role]:
    """The roles of an image, in its order."""
    return roles_of(image.roles, project, where=f"images/{image.name}/image.yml")


def image_node(project: Path, name: str) -> Node:
    """The node that an image's tree is while it is built: no inventory, the image's own variables."""
    image = image_of(project, name)
    variables = complete(image_roles(project, image), image, {}, {}, f"image {name}")
    return Node(name, name, variables, target="image")


def complete(
    roles: Iterable[Role],
    image: Image,
    inventory: Mapping[str, Any],
    origins: Mapping[str, str],
    who: str,
) -> dict[str, Any]:
    """Role defaults, then the image's variables, then the inventory's; each role's checked against its spec.

    A variable with a role's prefix that the role doesn't know is an error, with the nearest right name: a
    misspelt setting that silently does nothing is how PFC stays off.
    """
    roles = list(roles)
    values: dict[str, Any] = {**image.variables, **inventory}
    specs = {role.name: role.argument_spec() for role in roles}
    known = {variable for spec in specs.values() for variable in spec}
    for variable in values:
        # the longest role name that fits is the owner: `nvidia` must not claim `nvidia_driver_x`
        owner = max((name for name in specs if variable.startswith(f"{name}_")), key=len, default=None)
        if owner and variable not in known:
            near = difflib.get_close_matches(variable, known, n=3)
            raise GoldsmithError(
                f"role {owner} has no variable {variable}",
                where=_where(variable, image, inventory, origins, who),
                hint=f"did you mean {' or '.join(near)}?" if near else f"see roles/{owner}/meta/argument_specs.yml",
            )
    if stray := sorted(variable for variable in image.variables if variable not in known):
        near = difflib.get_close_matches(stray[0], known, n=3)
        raise GoldsmithError(
            f"no role of this image has a variable {stray[0]}",
            where=f"images/{image.name}/image.yml, variables.{stray[0]}",
            hint=f"did you mean {' or '.join(near)}?" if near else "",
        )
    checked: dict[str, Any] = dict(inventory)
    for role in roles:
        given = {name: values[name] for name in specs[role.name] if name in values}
        result, errors = ansible.validate(specs[role.name], {**role.defaults(), **given})
        if errors:
            variable = next((name for name in given if name in errors[0]), "")
            raise GoldsmithError(
                mask(errors[0], specs[role.name], given),
                where=_where(variable, image, inventory, origins, who) if variable else f"{who}, role {role.name}",
                hint=f"see roles/{role.name}/meta/argument_specs.yml",
            )
        checked.update(result)
    return checked


def mask(text: str, spec: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """A message without the values of variables that the spec marks no_log, at any depth."""
    for name, option in spec.items():
        value = values.get(name)
        for one in value if isinstance(value, list) else [value]:
            if option.get("no_log"):
                text = text.replace(str(one), "(not shown)") if str(one) else text
            elif isinstance(one, Mapping):
                text = mask(text, option.get("options") or {}, one)
    return text


def _where(variable: str, image: Image, inventory: Mapping[str, Any], origins: Mapping[str, str], who: str) -> str:
    if variable in inventory:
        return f"{origins.get(variable, who)}, {variable}"
    return f"images/{image.name}/image.yml, variables.{variable}"


def _ssh(host: ansible.Host) -> Ssh:
    """Ansible's connection variables, and ssh_known_hosts_file (pyinfra's name) for the site's host keys."""
    values = host.variables
    where = host.origins.get("ansible_port", f"node {host.name}")
    try:
        port = int(values.get("ansible_port", values.get("ansible_ssh_port", 22)))
    except (TypeError, ValueError):
        raise GoldsmithError(f"not a port: {values.get('ansible_port')!r}", where=f"{where}, ansible_port") from None
    key = values.get("ansible_ssh_private_key_file") or values.get("ansible_private_key_file")
    known_hosts = values.get("ssh_known_hosts_file")
    return Ssh(
        address=str(values.get("ansible_host", host.name)),
        port=port,
        user=str(values.get("ansible_user", values.get("ansible_ssh_user", "root"))),
        key_file=_absolute(key),
        known_hosts=_absolute(known_hosts),
        become=_truth(values.get("ansible_become", False), f"{where.rsplit(',', 1)[0]}, ansible_become"),
    )


def _truth(value: Any, where: str) -> bool:
    """A boolean as Ansible reads it: `ansible_become: "false"` is false."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("yes", "true", "on", "1", "y", "t", "no", "false", "off", "0", "n", "f", ""):
        return word in ("yes", "true", "on", "1", "y", "t")
    raise GoldsmithError(f"neither true nor false: {value!r}", where=where)


def _absolute(path: Any) -> str | None:
    return os.path.abspath(os.path.expanduser(str(path))) if path else None


def _vault_password_file() -> Path | None:
    for name in ("GOLDSMITH_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_PASSWORD_FILE"):
        if value := os.environ.get(name):
            return Path(value)
    return None
