"""`goldsmith lock`."""

from __future__ import annotations

from pathlib import Path

import click

from goldsmith.cli.group import DefaultGroup
from goldsmith.errors import GoldsmithError
from goldsmith.model.finding import worst
from goldsmith.model.image import flat_text
from goldsmith.model.lock import Lock, parse_lock, read_lock
from goldsmith.project import find_project

IMAGE = click.Path(path_type=Path, file_okay=False)


@click.group(cls=DefaultGroup, default="image")
def lock() -> None:
    """Resolve IMAGE (images/NAME) to exact packages, and keep them in the pool."""


@lock.command(name="image", hidden=True)
@click.argument("image", type=IMAGE)
@click.option("--refresh", is_flag=True, help="Resolve all anew, though the lock fits image.yml.")
@click.option(
    "--upgrade",
    multiple=True,
    metavar="NAME",
    help="Move this package, family or Python project, and what it forces; all others stay. Repeatable.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Change nothing. Exit 0: it fits image.yml and can still be had; 1: some of it only from the pool; "
    "2: it doesn't fit, or can't be had; 3: the repositories can't be read.",
)
@click.option("--offline", is_flag=True, help="With --check: don't ask the repositories.")
@click.option("--show", is_flag=True, help="Print image.yml with all that it extends, flat, and do nothing else.")
@click.option(
    "--allow-known-bad",
    "known_bad",
    is_flag=True,
    help="Lock it though its driver's module is known not to build for its kernel (lint's rule K1), which is refused "
    "otherwise: to see it fail, or to write a patch.",
)
def image_command(
    image: Path, refresh: bool, upgrade: tuple[str, ...], check: bool, offline: bool, show: bool, known_bad: bool
) -> None:
    """Resolve IMAGE (images/NAME) to exact packages, and keep them in the pool.

    Packages of an earlier lock stay as they are unless image.yml, --upgrade or --refresh move them. Exits with 2 for a
    driver whose module is known not to build for the kernel; no lock is written then.
    """
    asked = [name for name, on in (("--refresh", refresh), ("--upgrade", upgrade), ("--check", check), ("--show", show))
             if on]  # fmt: skip
    if len(asked) > 1 or (offline and not check):
        raise click.UsageError(f"{' and '.join(asked) or '--offline without --check'} can't be asked for together")
    project = find_project(image)
    if show:
        click.echo(flat_text(image), nl=False)
        return
    if check:
        from goldsmith.lock.checking import check_lock

        verdicts = check_lock(project, image, offline=offline)
        for one in verdicts:
            click.echo(one.what)
        raise SystemExit(worst([one.severity for one in verdicts]))
    from goldsmith.lock.diff import text
    from goldsmith.lock.locking import lock_image

    made, previous = lock_image(project, image, refresh=refresh, upgrade=upgrade, allow_known_bad=known_bad)
    click.echo(f"{image / 'image.lock'}: {_size(made)}, as of {made.created}")
    if previous is None:
        _families(made)
    elif previous.digest != made.digest:
        click.echo(text(previous, made))


def _size(made: Lock) -> str:
    wheels = sum(len(one.wheels) for one in made.environments.values())
    return f"{len(made.packages)} packages" + (f" and {wheels} wheels" if made.environments else "")


def _families(made: Lock) -> None:
    for name in dict.fromkeys(one.family for one in made.packages.values() if one.family):
        members = [one for one in made.packages.values() if one.family == name]
        chosen = sorted({one.version for one in members if one.why == f"family {name}"})
        click.echo(f"  {name}: {', '.join(chosen)} ({len(members)} packages)")
    for name, environment in made.environments.items():
        click.echo(f"  python {name}: Python {environment.python}, {len(environment.wheels)} wheels")


@lock.command()
@click.argument("old")
@click.argument("new")
def diff(old: str, new: str) -> None:
    """Say what changes from the lock OLD to NEW, by family, and what that does to a node.

    Each is an image's folder, a lock file, or REVISION:FOLDER of the git repository, e.g. HEAD~1:images/lab.
    """
    from goldsmith.lock.diff import text

    click.echo(text(named_lock(old), named_lock(new)))


def named_lock(name: str) -> Lock:
    """A lock as the command line names it: an image's folder, a lock file, or REVISION:FOLDER of the repository."""
    path = Path(name)
    if path.is_dir():
        return read_lock(path)
    if path.is_file():
        return parse_lock(path.read_bytes(), name)
    revision, colon, folder = name.partition(":")
    if not colon or not revision or revision.startswith("-"):
        raise GoldsmithError("no such lock", where=name, hint="an image's folder, a lock file, or REVISION:FOLDER")
    file = folder if folder.endswith(".lock") else f"{folder.rstrip('/')}/image.lock"
    from goldsmith.process import run

    # ./ : relative to where we are, as the other forms are
    spec = f"{revision}:{file if file.startswith(('/', '.')) else f'./{file}'}"
    done = run(["git", "show", "--end-of-options", spec], timeout=60, what="read the lock", check=False)
    if done.code != 0:
        raise GoldsmithError(f"git has no such lock: {done.err.strip() or done.out.strip()}", where=name)
    return parse_lock(done.out.encode(), name)
