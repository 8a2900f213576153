"""A node: one host of an inventory, with its data and its image. Or the tree of an image while it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from goldsmith.errors import GoldsmithError

# live: a booted machine. image: a root file system that isn't running (no systemd, no kernel of its own).
# Roles never ask systemd or /proc which it is; it is decided here, once (docs/architecture.md).
Target = Literal["live", "image"]


@dataclass(frozen=True)
class Ssh:
    """How to reach a node. known_hosts: a file; keys that aren't in it are refused, always."""

    address: str
    port: int = 22
    user: str = "root"
    key_file: str | None = None
    known_hosts: str | None = None
    become: bool = False  # the user isn't root and may `sudo -n`


@dataclass(frozen=True)
class Node:
    """variables: role defaults, then the image's variables, then the inventory's; checked and templated."""

    name: str
    image: str
    variables: Mapping[str, Any] = field(default_factory=dict, hash=False)
    groups: tuple[str, ...] = ()
    ssh: Ssh | None = None
    target: Target = "live"

    def __getitem__(self, variable: str) -> Any:
        """The value of a variable; a role's own always have one, from its defaults."""
        try:
            return self.variables[variable]
        except KeyError:
            raise GoldsmithError(
                f"node {self.name} has no variable {variable}",
                where=f"node {self.name}",
                hint=f"declare {variable} in the role's meta/argument_specs.yml, with a default",
            ) from None
