"""`goldsmith pool`."""

from __future__ import annotations

from pathlib import Path

import click

from goldsmith.cli.group import DefaultGroup
from goldsmith.cli.lock import IMAGE, named_lock
from goldsmith.lock.locking import fill, verify
from goldsmith.lock.pool import Pool
from goldsmith.lock.serve import make_server, serve
from goldsmith.model.lock import read_lock
from goldsmith.project import find_project, state_dir


@click.group(cls=DefaultGroup, default="fill")
def pool() -> None:
    """Keep every package and wheel of IMAGE's lock in the pool that builds and nodes install from."""


@pool.command(name="fill")
@click.argument("image", type=IMAGE)
@click.option("--verify", "deep", is_flag=True, help="Read every file's hash, not only its size.")
def fill_command(image: Path, deep: bool) -> None:
    """Fetch what the pool lacks of IMAGE's lock, then index and sign it."""
    fill(find_project(image), read_lock(image), verify=deep)


@pool.command(name="verify")
@click.argument("image", type=IMAGE)
def verify_command(image: Path) -> None:
    """Read every file of IMAGE's lock in the pool and compare it with the lock."""
    verify(find_project(image), read_lock(image))


@pool.command(name="prune")
@click.option(
    "--keep",
    multiple=True,
    metavar="LOCK",
    help="Keep what this lock needs, too: a folder, a file or REVISION:FOLDER. Repeatable.",
)
@click.option(
    "--forget",
    multiple=True,
    metavar="IMAGE",
    help="Remove the index of an image that the project no longer has, and what it alone needs. Repeatable.",
)
@click.option("--yes", is_flag=True, help="Remove it; otherwise it is only told.")
def prune_command(keep: tuple[str, ...], forget: tuple[str, ...], yes: bool) -> None:
    """Remove packages and wheels that no lock of the project and no published index needs."""
    from goldsmith.lock.prune import prunable, prune

    project = find_project()
    store = Pool(state_dir(project))
    locks = [named_lock(one) for one in keep]
    found = prune(project, store, locks, forget) if yes else prunable(project, store, locks, forget)
    for name in found.indexes:
        click.echo(f"index of {name} is kept, though the project has no such image: --forget {name} removes it")
    if not found.unused and not forget:
        click.echo("nothing to remove: everything in the pool is needed")
        return
    told = f"{len(found.unused)} files, {found.size / 1e6:.0f} MB, that no lock needs"
    if yes:
        click.echo(f"removed {told}")
    else:
        click.echo(f"would remove {told}; --yes does it. Locks to go back to are named with --keep.")


@pool.command(name="serve")
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8421, show_default=True, type=click.IntRange(1, 65535))
def serve_command(bind: str, port: int) -> None:
    """Serve the pool to nodes over HTTP until stopped; what it serves is signed, so HTTP is enough."""
    root = Pool(state_dir(find_project())).root
    # bound for a moment, to see that it can be: nobody is told that it serves and then that it doesn't
    make_server(root, bind, port).server_close()
    click.echo(f"serving {root} on http://{f'[{bind}]' if ':' in bind else bind}:{port}/", err=True)
    serve(root, bind, port)
