"""`goldsmith probe`: what one node says of itself, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from goldsmith.errors import GoldsmithError


@click.command()
@click.option("--local", is_flag=True, help="Probe this machine.")
@click.option("--site", type=click.Path(path_type=Path), help="The inventory the node is in.")
@click.option("--node", help="A node of the inventory; with --local, whose promises to look at.")
@click.option("--image", default=None, help="With --local and no inventory: look at what this image promises.")
@click.option("--deep", is_flag=True, help="Hash the large libraries too, and import torch.")
@click.option("--script", is_flag=True, help="Print the program that would be sent, instead of sending it.")
def probe(local: bool, site: Path | None, node: str | None, image: str | None, deep: bool, script: bool) -> int:
    """Print one probe: every fact that an audit judges, as JSON, schema 1.

    \b
      goldsmith probe --local                                  this machine, the roles' facts
      goldsmith probe --site inventories/lab --node node01     a node, as an audit asks it
    """
    from goldsmith.fleet.local import probe_local
    from goldsmith.model.probe import parse_probe

    program, name = _program(local, site, node, image, deep)
    if script:
        click.echo(program, nl=False)
        return 0
    if local:
        answer = parse_probe(name, probe_local(program, timeout=300 if deep else 60)).raw
    else:
        answer = _ask(site, name, program, deep)
    click.echo(json.dumps(answer, indent=1, sort_keys=True))
    return 0


def _program(local: bool, site: Path | None, node: str | None, image: str | None, deep: bool) -> tuple[str, str]:
    from goldsmith.inventory.site import load_site
    from goldsmith.plan import plan_image, plan_node
    from goldsmith.probe.bundle import bundle
    from goldsmith.project import find_project
    from goldsmith.role import find_roles

    if site and node:
        return plan_node(load_site(site), node).script(deep=deep), node
    if not local or site or node:
        raise GoldsmithError("say which node", hint="--local, or --site SITE --node NODE")
    if image:
        want = {**plan_image(find_project(), image).want(deep=deep), "target": "live"}
        roles = plan_image(find_project(), image).roles
        return bundle(roles, want), "localhost"
    roles_here = tuple(find_roles(find_project()).values())
    return bundle(roles_here, {"target": "live", "deep": deep}), "localhost"


def _ask(site: Path | None, name: str, program: str, deep: bool) -> Mapping[str, Any]:
    from goldsmith.fleet.ssh import probe_nodes
    from goldsmith.inventory.site import load_site

    assert site is not None
    node = load_site(site).node(name)
    [answer] = probe_nodes([node], lambda _: program, deadline=300.0 if deep else 30.0)
    if answer.probe is None:
        raise GoldsmithError(answer.reason, where=f"node {name}", hint=answer.remedy)
    return answer.probe.raw
