"""`goldsmith boot DIR`."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from goldsmith.audit.run import Audit
    from goldsmith.vm.boot import Booted
    from goldsmith.vm.machine import DiskFormat
    from goldsmith.vm.reach import Login

# What a machine writes into its overlay while it boots and is audited, with room to spare.
NODE_GIB = 2.0
MOST = 16

_folder = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("folder", metavar="DIR", type=_folder)
@click.option(
    "--disk", "disk_format", type=click.Choice(["raw", "qcow2"]), help="Which of its disks; the first it has."
)
@click.option("--nodes", type=click.IntRange(1, MOST), default=1, show_default=True, help="Clones, side by side.")
@click.option("--timeout", type=click.FloatRange(min=1), help="Seconds until ssh; 180 under KVM, 900 without.")
@click.option("--memory", type=click.IntRange(min=512), default=2048, show_default=True, help="MiB a machine.")
@click.option(
    "--allowed-signers",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="GOLDSMITH_ALLOWED_SIGNERS",
    show_envvar=True,
    help="Whose signature counts; otherwise the lab's own, where that is who signed.",
)
@click.option("--seed", type=_folder, help="A folder with cloud-init's user-data and meta-data, shown to each machine.")
@click.option("--console", "consoles", type=_folder, help="Keep each machine's console there, as NAME.log.")
@click.option("--keep", is_flag=True, help="After the audit leave them running until Ctrl-C, and say how to log in.")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
def boot(
    folder: Path,
    disk_format: DiskFormat | None,
    nodes: int,
    timeout: float | None,
    memory: int,
    allowed_signers: Path | None,
    seed: Path | None,
    consoles: Path | None,
    keep: bool,
    format_: str,
) -> int:
    """Boot the disk of DIR, which a build wrote, in QEMU; audit it over ssh; power it off.

    It is verified first, as by `goldsmith verify`, and booted only if that says OK. The disk isn't written to. It needs
    no root, only its programs and a folder to write to (GOLDSMITH_STATE). Exits as the audit does: 0 OK, 1 WARN, 2 FAIL
    (also: failed units, another kernel), 3 UNKNOWN; 4 if a machine can't be reached.
    """
    from goldsmith import host
    from goldsmith.image import signature
    from goldsmith.image.artifact import read_artifact
    from goldsmith.plan import plan_image
    from goldsmith.project import find_project, state_dir
    from goldsmith.vm import boot as vm
    from goldsmith.vm.artifact import disk_of, require_architecture, require_seed
    from goldsmith.vm.folder import private as private_folder
    from goldsmith.vm.machine import TOOLS, Machine

    project = find_project()
    state = state_dir(project)
    if seed:
        require_seed(seed)
    host.require_tools(signature.TOOLS)
    if code := _verified(folder, allowed_signers, project, state):
        return code
    artifact = read_artifact(folder, verify=False)
    require_architecture(artifact.manifest)
    disk = disk_of(folder, disk_format)
    if artifact.manifest["desired"] != plan_image(project, artifact.image).desired.digest():
        click.echo(f"{folder} was built with other roles than this checkout's, which the audit compares with", err=True)
    host.require_tools(TOOLS)
    host.require_disk(state, NODE_GIB * nodes, "booting a disk")
    names = [f"{artifact.image}-{number}" for number in range(1, nodes + 1)]
    machines = [Machine(name, disk, memory=memory, seed=seed) for name in names]
    with private_folder(state) as private:
        try:
            with vm.clones(machines, private, timeout=timeout) as logins:
                booted = [(login, vm.settle(login, timeout)) for login in logins]
                result = vm.audit(project, artifact.image, booted)
                _tell(result, [one for _, one in booted], format_)
                if keep:
                    _keep(logins)
                unplugged = vm.power_off(logins)
        finally:
            _save_consoles(private, names, consoles)
    return max(int(result.severity), 1 if unplugged else 0)


def _verified(folder: Path, allowed: Path | None, project: Path, state: Path) -> int:
    """The exit code of what can't be trusted, after saying why; 0 for what can. Nothing unverified is booted."""
    from goldsmith.image import signature, sums
    from goldsmith.image.verify import severity, verify
    from goldsmith.model.finding import Severity
    from goldsmith.progress import step

    key = state / "signing/key"
    # access: it is root's, and whoever boots needn't be
    if allowed is None and os.access(key, os.R_OK) and (folder / sums.SIGNATURE).is_file():
        # this machine's own key, of which `--sign lab` made the signature
        allowed = state / "signing/allowed_signers" if signature.signed_by(folder, key) else None
    with step(f"verify {folder}") as now:
        checks = verify(folder, allowed, None, project / "images")
        found = severity(checks)
        now.result, now.failed = found.name, found is not Severity.OK
    for one in checks:
        if one.severity is not Severity.OK:
            click.echo(f"{one.severity.name:7}  {one.name:9}  {one.text}", err=True)
    if found is not Severity.OK:
        click.echo(f"{folder}: {found.name}: it is not booted", err=True)
    return int(found)


def _tell(result: Audit, booted: Sequence[Booted], format_: str) -> None:
    from goldsmith.cli.audit import render

    report = render(result, format_, color=True)
    if format_ == "json":
        click.echo(json.dumps({**json.loads(report), "booted": [_json(one) for one in booted]}, indent=1))
        return
    for one in booted:
        failed = f": {', '.join(one.failed)}" if one.failed else ""
        click.echo(f"{one.name}: {one.state}{failed}; ssh after {one.seconds:.0f} s under {one.accelerator}")
        click.echo(f"  kernel {one.release}, machine-id {one.machine_id}")
        click.echo(f"  command line: {one.command_line}")
    click.echo(report, nl=False)


def _json(one: Booted) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(one), "seconds": round(one.seconds, 1)}


def _keep(logins: Sequence[Login]) -> None:
    """Wait for Ctrl-C."""
    for login in logins:
        click.echo(f"{login.machine.machine.name}: {shlex.join(login.command())}", err=True)
    click.echo("Ctrl-C powers off", err=True)
    try:
        while not all(login.machine.ended for login in logins):
            time.sleep(1)
    except KeyboardInterrupt:
        click.echo(err=True)


def _save_consoles(private: Path, names: Sequence[str], folder: Path | None) -> None:
    from goldsmith import atomic

    for name in names if folder else ():
        log = private / name / "console.log"
        if log.is_file():
            assert folder
            atomic.write(folder / f"{name}.log", log.read_bytes())
