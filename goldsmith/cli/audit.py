"""`goldsmith audit SITE`."""

from __future__ import annotations

from pathlib import Path

import click

from goldsmith import atomic
from goldsmith.errors import GoldsmithError


@click.command()
@click.argument("site", type=click.Path(path_type=Path))
@click.option("--limit", metavar="NODESET", help="Only these nodes: node[01-03], node01,node02, or a group.")
@click.option("--format", "format_", type=click.Choice(["text", "json", "svg"]), default="text", show_default=True)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the report there.")
@click.option("--deadline", type=click.FloatRange(min=1), default=30.0, show_default=True,
              help="Seconds a node has to answer; one that doesn't is UNKNOWN.")  # fmt: skip
@click.option("--deep", is_flag=True, help="Hash the large libraries too, and import torch: minutes, not seconds.")
@click.option("--saved", type=click.Path(path_type=Path), help="Judge the saved probes of this folder, offline.")
@click.option("--save", "save_to", type=click.Path(path_type=Path), help="Keep each node's probe there.")
def audit(
    site: Path,
    limit: str | None,
    format_: str,
    output: Path | None,
    deadline: float,
    deep: bool,
    saved: Path | None,
    save_to: Path | None,
) -> int:
    """Which nodes differ from the lock and the roles, or from each other, in what, and since when.

    All nodes are asked at once, over SSH, with one round trip each. Nothing is changed. Exits with 0 OK,
    1 WARN, 2 FAIL, 3 UNKNOWN (a node or a fact could not be read, and nothing is worse).
    """
    if saved and (deep or save_to):
        raise GoldsmithError("--saved judges what is there: it can't be deeper, nor saved", hint="leave one out")
    if saved and not saved.is_dir():
        raise GoldsmithError("there is no such folder", where=f"--saved {saved}", hint="it holds NODE.json files")
    from goldsmith.audit.run import audit_site, exit_code, require_nodes
    from goldsmith.inventory.site import load_site

    result = audit_site(load_site(site), limit, deadline=deadline, deep=deep, saved=saved, save_to=save_to)
    require_nodes(result)
    _write(render(result, format_, color=output is None), format_, output)
    return exit_code(result)


def render(result: object, format_: str, *, color: bool) -> str:
    from rich.console import Console

    from goldsmith import report
    from goldsmith.audit.run import Audit

    assert isinstance(result, Audit)
    if format_ == "json":
        return report.audit_json(result) + "\n"
    if format_ == "svg":
        return report.audit_svg(result)
    terminal = Console()
    colored = color and terminal.is_terminal
    return report.audit_text(result, min(terminal.width, 140) if colored else report.WIDTH, color=colored)


def _write(text: str, format_: str, output: Path | None) -> None:
    if output:
        if not output.absolute().parent.is_dir():
            raise GoldsmithError("the folder isn't there", where=f"--output {output}", hint="make it first")
        atomic.write(output, text)
        click.echo(f"{format_} report written to {output}", err=True)
    else:
        click.echo(text, nl=False)
