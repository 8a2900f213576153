"""`goldsmith deploy SITE`."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import click

from goldsmith.holding import holding
from goldsmith.progress import console, step
from goldsmith.project import state_dir

if TYPE_CHECKING:
    from goldsmith.inventory.site import Site


@click.command()
@click.argument("site", type=click.Path(path_type=Path))
@click.option("--limit", metavar="NODESET", help="Only these nodes: node[01-03], node01,node02, or a group.")
@click.option("--check", is_flag=True, help="Change nothing; exit with 2 if there is something to change.")
def deploy(site: Path, limit: str | None, check: bool) -> int:
    """Bring a site's nodes to what their image's lock and roles promise.

    Exits with 0 if all nodes are as promised (now), 2 if a node failed or, with --check, needs changes.
    `pyinfra inventories/SITE.py deploy.py` does the same, and takes pyinfra's own options.
    """
    from goldsmith.inventory.site import load_site

    return deploy_site(load_site(site), limit, check=check)


def deploy_site(site: Site, limit: str | None, *, check: bool) -> int:
    """Run a deploy, show what it does and did; returns the exit code."""
    from goldsmith.converge.run import deploy as run
    from goldsmith.inventory.site import fold

    verb = "what a deploy would change on" if check else "deploy to"
    with holding(_lock_file(site), f"a deploy to {site.path}"), step(f"{verb} {fold(site.select(limit))}") as current:
        result = run(site, limit, check=check, on_line=current.say)
        current.result, current.failed = result.line(check=check), bool(result.failed)
    for nodes, operations in _by_value(result.changed).items():
        _say(f"    {fold(nodes)}  {'to change' if check else 'changed'}: {', '.join(operations)}")
    for nodes, lines in _by_value(result.notes).items():
        for line in lines:
            _say(f"    {fold(nodes)}  {line}")
    for nodes, lines in _by_value(result.failed).items():
        _say(f"    {fold(nodes)}  failed:", style="red")
        for line in lines:
            _say(f"      {line}")
    if result.failed:
        return 2
    return 2 if check and result.count else 0


def _say(line: str, style: str = "") -> None:
    console.print(line, style=style, markup=False, soft_wrap=True)


def _lock_file(site: Site) -> Path:
    """One deploy to a site at a time: two would meet at each node's dpkg."""
    name = sha256(str(site.folder).encode()).hexdigest()[:16]
    return state_dir(site.project) / "deploys" / f"{name}.lock"


def _by_value(table: Mapping[str, list[str]]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """nodes with the same lines, together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, lines in table.items():
        groups.setdefault(tuple(dict.fromkeys(lines)), []).append(node)
    return {tuple(nodes): lines for lines, nodes in groups.items()}
