"""`goldsmith lab …`: real nodes on this machine, from an empty machine to a clean audit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from goldsmith.inventory.site import Site
    from goldsmith.lab.settings import LabSettings

# Pool, base system, packed image and its unpacked tree; then what the nodes write.
FIRST_GIB = 7.0
LATER_GIB = 1.0

_site = click.option(
    "--site",
    type=click.Path(path_type=Path),
    default=Path("inventories/lab"),
    show_default=True,
    help="The site whose variable `lab` says what the lab is.",
)


@click.group()
def lab() -> None:
    """Real nodes on this machine: systemd-nspawn containers of the site's golden image."""


@lab.command()
@_site
def up(site: Path) -> int:
    """Lock and build the image, boot the nodes, deploy, audit. Again at any time: what is there is kept.

    Exits as the audit does: 0 OK, 1 WARN, 2 FAIL (or a failed deploy), 3 UNKNOWN; 4 where this machine can't.
    """
    from goldsmith import host
    from goldsmith.holding import holding
    from goldsmith.image.artifact import ROOTFS
    from goldsmith.image.build import default_output
    from goldsmith.lab import network
    from goldsmith.lab.site import image_of_lab
    from goldsmith.lock import LAB_TOOLS, lock_image

    host.require_root("the lab")
    loaded, settings = _load(site)
    image = image_of_lab(loaded)
    project = loaded.project
    built = (default_output(project, image) / ROOTFS).is_file()
    host.require_disk(settings.root, LATER_GIB if built else FIRST_GIB, "the lab")
    host.require_tools({**host.LAB_TOOLS, **LAB_TOOLS})
    host.require_namespaces()
    host.require_overlay(settings.root)
    network.check(settings)
    with holding(settings.lock_file, f"lab {settings.name}"):
        lock_image(project, project / "images" / image)
        _boot(loaded, settings, image)
        code = _deploy_and_audit(loaded)
    if code in (0, 1):
        _next(site, settings)
    return code


def _boot(site: Site, settings: LabSettings, image: str) -> None:
    """Build the image unless it is built, and boot the site's nodes from it."""
    from goldsmith.cli.build import build_image
    from goldsmith.image.base import make_base
    from goldsmith.image.build import prune_bases
    from goldsmith.lab import lab as engine
    from goldsmith.lab import trees

    artifact = build_image(site.project, image)
    with trees.settled(settings.root):
        base = make_base(site.image(image), site.lock(image), settings.root)
    engine.up(settings, artifact, base)
    with trees.settled(settings.root):
        prune_bases(site.project, image, trees.in_use(settings.root))


def _deploy_and_audit(site: Site) -> int:
    """Bring the nodes to the roles' promises (nothing to do, right after a build), then audit them."""
    from goldsmith.audit.run import audit_site, exit_code
    from goldsmith.cli.audit import render
    from goldsmith.cli.deploy import deploy_site
    from goldsmith.inventory.site import fold
    from goldsmith.progress import step

    code = deploy_site(site, None, check=False)
    if code != 0:
        return code
    with step(f"audit {fold(site.names)}"):
        result = audit_site(site)
    click.echo(render(result, "text", color=True), nl=False)
    return exit_code(result)


def _next(site: Path, settings: LabSettings) -> None:
    """The three commands to try next."""
    program = ".venv/bin/goldsmith" if Path(".venv/bin/goldsmith").exists() else "goldsmith"
    first = next(iter(settings.nodes))
    option = "" if site == Path("inventories/lab") else f" --site {site}"
    commands = [
        (f"{program} lab shell {first}{option}", "a node from inside; break something there"),
        (f"{program} audit {site}", "who differs from the lock and from the others, and in what"),
        (f"{program} deploy {site}", "what heals it; `make clean-lab` removes the lab"),
    ]
    width = max(len(command) for command, _ in commands)
    click.echo("\nNext:")
    for command, what in commands:
        click.echo(f"  {command:{width}}  # {what}")


@lab.command()
@_site
@click.option("--remove", is_flag=True, help="Remove the lab's files, too: nothing of it is left.")
def down(site: Path, remove: bool) -> None:
    """Stop the nodes, the pool's server and the bridge."""
    from goldsmith import host
    from goldsmith.holding import holding
    from goldsmith.lab import lab as engine

    _, settings = _load(site)
    if not settings.root.exists():
        click.echo(f"lab {settings.name}: there is nothing here", err=True)
        return
    host.require_root("the lab")
    with holding(settings.lock_file, f"lab {settings.name}"):
        engine.down(settings, remove=remove)
        if remove:
            settings.lock_file.unlink(missing_ok=True)
    with suppress(OSError):  # the last lab's
        settings.lock_file.parent.rmdir()


@lab.command()
@_site
def status(site: Path) -> int:
    """What runs. Exits with 0 if every node and the pool's server do, 2 if not."""
    from goldsmith.lab import lab as engine

    _, settings = _load(site)
    current = engine.status(settings)
    click.echo(f"lab {current.name}: image {current.image or 'none'}, pool {_word(current.pool_running)}")
    width = max(len(one.name) for one in current.nodes)
    for one in current.nodes:
        lower = f", {one.lower}" if one.lower else ""
        click.echo(f"  {one.name:{width}}  {one.address:15}  {one.state}{lower}")
    return 0 if len(current.running) == len(current.nodes) and current.pool_running else 2


def _word(running: bool) -> str:
    return "served" if running else "not served"


@lab.command()
@_site
@click.argument("node")
@click.option("--bare", is_flag=True, help="On the base system alone, for `deploy` to converge.")
def start(site: Path, node: str, bare: bool) -> None:
    """Start NODE; one that was stopped goes on with what it had on its disk."""
    from goldsmith.lab import lab as engine

    with _changing(site) as settings:
        engine.start_node(settings, node, "base" if bare else "golden")


@lab.command()
@_site
@click.argument("node")
@click.option("--remove", is_flag=True, help="Remove its disk, too: its next start is from the image again.")
def stop(site: Path, node: str, remove: bool) -> None:
    """Shut NODE down in order; what it has on its disk stays."""
    from goldsmith.lab import lab as engine

    with _changing(site) as settings:
        (engine.remove_node if remove else engine.stop_node)(settings, node)


@lab.command()
@_site
@click.argument("node")
@click.argument("command", nargs=-1)
def shell(site: Path, node: str, command: tuple[str, ...]) -> None:
    """A shell on NODE over ssh, or COMMAND there (after `--`)."""
    from goldsmith import host
    from goldsmith.errors import GoldsmithError
    from goldsmith.lab import lab as engine

    _, settings = _load(site)
    engine.leader(settings, node)
    host.require_tools({"ssh": "openssh-client"}, install=False)
    try:
        os.execvp("ssh", ["ssh", "-F", str(settings.ssh / "config"), node, *command])
    except OSError as error:
        raise GoldsmithError(f"ssh can't be run: {error.strerror}") from None


@contextmanager
def _changing(site: Path) -> Iterator[LabSettings]:
    """The lab's settings, for root alone, with the lab held against a second run."""
    from goldsmith import host
    from goldsmith.holding import holding

    _, settings = _load(site)
    host.require_root("the lab")
    with holding(settings.lock_file, f"lab {settings.name}"):
        yield settings


def _load(site: Path) -> tuple[Site, LabSettings]:
    from goldsmith.inventory.site import load_site
    from goldsmith.lab.site import settings_of
    from goldsmith.project import state_dir

    loaded = load_site(site)
    return loaded, settings_of(loaded, state_dir(loaded.project))
