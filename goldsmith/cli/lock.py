"""`goldsmith lock` and `goldsmith pool`."""

from __future__ import annotations

from pathlib import Path

import click

from goldsmith.lock.locking import existing_lock, fill, lock_image, verify
from goldsmith.lock.pool import Pool
from goldsmith.lock.serve import serve
from goldsmith.model.finding import Severity
from goldsmith.model.image import read_image
from goldsmith.model.lock import read_lock
from goldsmith.project import find_project, state_dir
from goldsmith.role import roles_of

IMAGE = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("image", type=IMAGE)
@click.option("--refresh", is_flag=True, help="Resolve anew, though the lock fits image.yml.")
@click.option("--check", is_flag=True, help="Change nothing; exit 0 if the lock fits image.yml, 2 if it doesn't.")
def lock(image: Path, refresh: bool, check: bool) -> None:
    """Resolve IMAGE (images/NAME) to exact packages, and keep them in the local pool."""
    project = find_project(image)
    if check:
        definition = read_image(image)
        roles = roles_of(definition.roles, project, str(image / "image.yml"))
        fits = existing_lock(image, definition, roles) is not None
        click.echo(f"{image / 'image.lock'}: {'fits image.yml' if fits else 'is missing or stale'}")
        raise SystemExit(Severity.OK if fits else Severity.FAIL)
    made = lock_image(project, image, refresh=refresh)
    families = [
        name for name in read_image(image).families if any(one.family == name for one in made.packages.values())
    ]
    click.echo(f"{image / 'image.lock'}: {len(made.packages)} packages, as of {made.created}")
    for name in families:
        members = [one for one in made.packages.values() if one.family == name]
        chosen = sorted({one.version for one in members if one.why == f"family {name}"})
        click.echo(f"  {name}: {', '.join(chosen)} ({len(members)} packages)")


@click.group()
def pool() -> None:
    """The local pool: the apt repository that builds and nodes install from."""


@pool.command(name="serve")
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8421, show_default=True, type=click.IntRange(1, 65535))
def serve_command(bind: str, port: int) -> None:
    """Serve the pool to nodes over HTTP until stopped; what it serves is signed, so HTTP is enough."""
    root = Pool(state_dir(find_project())).root
    click.echo(f"serving {root} on http://{f'[{bind}]' if ':' in bind else bind}:{port}/", err=True)
    serve(root, bind, port)


@pool.command(name="fill")
@click.argument("image", type=IMAGE)
@click.option("--verify", "deep", is_flag=True, help="Read every package's hash, not only its size.")
def fill_command(image: Path, deep: bool) -> None:
    """Fetch what the pool lacks of IMAGE's lock."""
    fill(find_project(image), read_lock(image), verify=deep)


@pool.command(name="verify")
@click.argument("image", type=IMAGE)
def verify_command(image: Path) -> None:
    """Read every package of IMAGE's lock in the pool and compare it with the lock."""
    verify(find_project(image), read_lock(image))
