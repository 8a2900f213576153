"""`goldsmith verify DIR`."""

from __future__ import annotations

import json
from pathlib import Path

import click

_file = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--allowed-signers",
    type=_file,
    envvar="GOLDSMITH_ALLOWED_SIGNERS",
    show_envvar=True,
    help="Whose signature counts, as ssh-keygen(1) has it. The lab's: .goldsmith/signing/allowed_signers.",
)
@click.option(
    "--lock", type=_file, help="The lock to compare with; otherwise images/NAME/image.lock of the project here."
)
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
def verify(folder: Path, allowed_signers: Path | None, lock: Path | None, format_: str) -> int:
    """Is DIR, which a build wrote, whole, signed by whom you trust, and of its lock?

    Exits with 0 if so, 2 if a file was changed, added or lost, the signature is somebody else's, or the papers
    disagree, 3 where that can't be told: no signature, nobody to trust, no lock to compare with.
    """
    from goldsmith import host
    from goldsmith.image import signature
    from goldsmith.image.verify import severity
    from goldsmith.image.verify import verify as run
    from goldsmith.progress import step

    host.require_tools(signature.TOOLS, install=False)
    with step(f"read {folder}"):
        checks = run(folder, allowed_signers, lock, _images())
    code = severity(checks)
    if format_ == "json":
        found = [{"check": one.name, "severity": one.severity.name, "text": one.text} for one in checks]
        click.echo(json.dumps({"schema": 1, "severity": code.name, "checks": found}, indent=1))
    else:
        for one in checks:
            click.echo(f"{one.severity.name:7}  {one.name:9}  {one.text}")
        click.echo(f"{folder}: {code.name}")
    return int(code)


def _images() -> Path | None:
    """images/ of the project that we are in; not of one around the folder, which may have come with the artifact."""
    from goldsmith.errors import GoldsmithError
    from goldsmith.project import find_project

    try:
        return find_project() / "images"
    except GoldsmithError:
        return None
