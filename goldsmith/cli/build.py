"""`goldsmith build IMAGE`."""

from __future__ import annotations

from pathlib import Path

import click

from goldsmith.image.artifact import Artifact

# What a build takes below the state directory: base system, tree and packed tree of an image with PyTorch.
BUILD_GIB = 4.0


@click.command()
@click.argument("image", type=click.Path(path_type=Path, file_okay=False))
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for what is built.")
@click.option("--format", "format_", default="rootfs", show_default=True, help="What to write: rootfs.")
def build(image: Path, output: Path | None, format_: str) -> None:
    """Build IMAGE (images/NAME) from its lock and the local pool, with the roles that deploy uses.

    Writes rootfs.tar.zst and manifest.json, the latter read back from the finished tree and compared with the
    lock. What was built from the same sources already is kept.
    """
    from goldsmith import host
    from goldsmith.errors import NotBuiltYet
    from goldsmith.model.image import read_image
    from goldsmith.model.lock import read_lock
    from goldsmith.project import find_project, state_dir

    if format_ != "rootfs":
        raise NotBuiltYet(f"the image format {format_}")
    read_image(image)
    read_lock(image)
    project = find_project(image)
    host.require_root("building an image")
    host.require_tools(host.IMAGE_TOOLS)
    host.require_namespaces()
    host.require_disk(state_dir(project), BUILD_GIB, "building an image")
    artifact = build_image(project, image.resolve().name, output)
    click.echo(f"{artifact.rootfs}: {artifact.size / 1e6:.0f} MB, sha256 {artifact.sha256}")


def build_image(project: Path, image: str, output: Path | None = None) -> Artifact:
    """Fill the pool with what the image's lock names, then build it."""
    from goldsmith.image.build import build as run
    from goldsmith.lock import fill
    from goldsmith.model.lock import read_lock

    fill(project, read_lock(project / "images" / image))
    return run(project, image, output)
