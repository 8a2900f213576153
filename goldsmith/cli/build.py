"""`goldsmith build IMAGE`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from goldsmith.image.artifact import Artifact

# What a build takes below the state directory: base system, layer of packages, tree and packed tree of an image with
# PyTorch.
BUILD_GIB = 7.0
# What the packed tree takes where it goes.
OUTPUT_GIB = 1.0
# What --sign takes for the lab's own key.
LAB = "lab"


@click.command()
@click.argument("image", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--format", "format_", default="rootfs", show_default=True, help="What to write: rootfs,squashfs,disk,oci."
)
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), help="Folder for what is built.")
@click.option(
    "--sign",
    metavar="KEY",
    envvar="GOLDSMITH_SIGN_KEY",
    show_envvar=True,
    help="Sign it with this ssh key; `lab`: with one of this machine's own, made when it is first needed.",
)
@click.option(
    "--check-reproducible",
    "again",
    is_flag=True,
    help="Build it twice, the second time from nothing kept, and compare. Exit 2, with the files, if they differ.",
)
def build(image: Path, output: Path | None, format_: str, sign: str | None, again: bool) -> None:
    """Build IMAGE (images/NAME) from its lock and the local pool, with the roles that deploy uses.

    Writes the formats asked for, manifest.json, read back from the finished tree and compared with the lock, an SBOM,
    and SHA256SUMS over all of it. What was built from the same sources already is kept.
    """
    from goldsmith import host
    from goldsmith.image import formats, signature
    from goldsmith.image.papers import papers_of
    from goldsmith.model.image import read_image
    from goldsmith.model.lock import read_lock
    from goldsmith.project import find_project, state_dir

    names = formats.parse(format_)
    read_image(image)
    read_lock(image)
    project = find_project(image)
    key = Path(sign) if sign and sign != LAB else None
    if key:
        signature.require_key(key)  # not after minutes of building
    host.require_root("building an image")
    host.require_tools({**host.IMAGE_TOOLS, **formats.tools(names)})
    host.require_namespaces()
    more = sum(formats.FORMATS[name].gib for name in names)
    twice = 2 if again else 1
    host.require_disk(state_dir(project), (BUILD_GIB + more) * twice, "building an image")
    if output:
        host.require_disk(output, OUTPUT_GIB + more, "the built image")
    if sign == LAB:
        key = signature.lab_key(state_dir(project))
    artifact = _build(project, image.resolve().name, output, names, key, keep_signature=False)
    for line in papers_of(artifact):
        click.echo(line)
    if again:
        _compare(project, artifact)


# How many differences are shown; the first few tell what they have in common.
SHOWN = 40


def _compare(project: Path, artifact: Artifact) -> None:
    from goldsmith.errors import Refused
    from goldsmith.image.reproducible import build_again

    if found := build_again(project, artifact):
        more = f"\n  … and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        shown = "\n  ".join(found[:SHOWN])
        raise Refused(
            f"two builds of one lock differ:\n  {shown}{more}",
            where=f"images/{artifact.image}",
            hint="a role or a package writes something of the day, the place or the machine",
        )
    click.echo(f"built twice, the same: {', '.join(artifact.formats)}")


def build_image(project: Path, image: str) -> Artifact:
    """Fill the pool with what the image's lock names, then build it for the lab: with its key unless it is signed."""
    from goldsmith.image.signature import lab_key
    from goldsmith.project import state_dir

    return _build(project, image, None, ("rootfs",), lab_key(state_dir(project)), keep_signature=True)


def _build(
    project: Path, image: str, output: Path | None, formats: Sequence[str], key: Path | None, *, keep_signature: bool
) -> Artifact:
    from goldsmith.image.build import build as run
    from goldsmith.lock import fill
    from goldsmith.model.lock import read_lock

    fill(project, read_lock(project / "images" / image))
    return run(project, image, output, formats, key, keep_signature=keep_signature)
