"""`goldsmith hygiene DIR`."""

from __future__ import annotations

import json
from pathlib import Path

import click

# What an image with PyTorch takes, unpacked.
GIB = 3.0


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
def hygiene(folder: Path, format_: str) -> int:
    """Does the image in DIR, which a build wrote, hold nothing that must not be in an image?

    Machine identity, secrets, logs, subnet managers, foreign arrays, files that everybody may write, and what apt would
    change. The build has looked at the same. Exits with 0 if there is nothing, 2 otherwise.
    """
    from goldsmith import host
    from goldsmith.image.artifact import read_artifact
    from goldsmith.image.hygiene import CHECKS, told
    from goldsmith.image.hygiene.again import inspect_artifact
    from goldsmith.lock import fill
    from goldsmith.model.finding import worst
    from goldsmith.model.lock import read_lock
    from goldsmith.project import find_project, state_dir

    project = find_project()
    image = read_artifact(folder, verify=False).image
    lock = read_lock(project / "images" / image)
    host.require_root("looking into an image")
    host.require_tools(host.IMAGE_TOOLS)
    host.require_namespaces()
    host.require_disk(state_dir(project), GIB, "the unpacked image")
    fill(project, lock)
    found = inspect_artifact(project, folder)
    severity = worst([one.severity for one in found])
    if format_ == "json":
        said = {"severity": severity.name, "checked": CHECKS, "findings": [one.to_json() for one in found]}
        click.echo(json.dumps({"schema": 1, **said}, indent=1))
    else:
        if found:
            click.echo(told(found))
        click.echo(f"{folder}: {severity.name}, {len(CHECKS)} rules")
    return int(severity)
