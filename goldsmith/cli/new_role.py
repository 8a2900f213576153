"""`goldsmith new-role NAME`."""

from __future__ import annotations

import click


@click.command("new-role")
@click.argument("name")
@click.option("--image", default=None, help="Also add the role to this image's list of roles.")
def new_role(name: str, image: str | None) -> None:
    """Lay down roles/NAME: a working role to change into what you need (CONTRIBUTING.md)."""
    from goldsmith.new_role import new_role as make
    from goldsmith.project import find_project

    project = find_project()
    for path in make(project, name, image):
        click.echo(f"wrote {path.relative_to(project)}")
    if image:
        click.echo(f"next: edit roles/{name}/desired.py, then goldsmith lock images/{image}")
    else:
        click.echo(f"next: edit roles/{name}/desired.py, and list {name} in an image's roles")
