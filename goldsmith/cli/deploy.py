"""`goldsmith deploy SITE`."""

from __future__ import annotations

from pathlib import Path

import click

from goldsmith.progress import console, step


@click.command()
@click.argument("site", type=click.Path(path_type=Path))
@click.option("--limit", metavar="NODESET", help="Only these nodes: node[01-03], node01,node02, or a group.")
@click.option("--check", is_flag=True, help="Change nothing; exit with 2 if there is something to change.")
def deploy(site: Path, limit: str | None, check: bool) -> int:
    """Bring a site's nodes to what their image's lock and roles promise.

    Exits with 0 if all nodes are as promised (now), 2 if a node failed or, with --check, needs changes.
    The same as `pyinfra inventories/SITE.py deploy.py`, whose options all work.
    """
    from goldsmith.inventory.site import load_site

    return deploy_site(load_site(site), limit, check=check)


def deploy_site(site: object, limit: str | None, *, check: bool) -> int:
    """Run a deploy, show what it does and did; returns the exit code."""
    from goldsmith.converge.run import deploy as run
    from goldsmith.inventory.site import Site, fold

    assert isinstance(site, Site)
    verb = "what a deploy would change on" if check else "deploy to"
    with step(f"{verb} {fold(site.select(limit))}") as current:
        result = run(site, limit, check=check, on_line=current.say)
        current.result = result.line(check=check)
    for nodes, operations in _by_value(result.changed).items():
        console.print(
            f"    {fold(nodes)}  {'to change' if check else 'changed'}: {', '.join(operations)}", markup=False
        )
    for nodes, lines in _by_value(result.failed).items():
        console.print(f"    {fold(nodes)}  failed:", style="red", markup=False)
        for line in lines:
            console.print(f"      {line}", markup=False)
    if result.failed:
        return 2
    return 2 if check and result.count else 0


def _by_value(table: object) -> dict[tuple[str, ...], tuple[str, ...]]:
    """nodes with the same lines, together."""
    assert isinstance(table, dict)
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, lines in table.items():
        groups.setdefault(tuple(lines), []).append(node)
    return {tuple(nodes): lines for lines, nodes in groups.items()}
