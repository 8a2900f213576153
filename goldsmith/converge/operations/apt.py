"""Packages: one transaction a node, simulated first, refused if it would do anything the lock doesn't name.

What is run is in goldsmith/converge/transaction.py, what apt says of it is read in aptsays.py. pyinfra's apt.packages
can't hold, pin or be refused, and apt itself resolves a pinned metapackage's dependencies to whatever is newest
(NVIDIA/NemoClaw#8207): so exact versions of everything, the pool as the only source, no removal, and the result read
back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyinfra import logger
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.command import PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from goldsmith.converge import aptsays, node
from goldsmith.converge.host import changed, differences, this_probe
from goldsmith.converge.run import NOTE
from goldsmith.converge.transaction import Commands, Transaction, new_folder, plan_transaction
from goldsmith.model.lock import FAMILIES
from goldsmith.model.probe import Probe
from goldsmith.plan import Plan

TIMEOUT = 3600
_WAIT = (Path(node.__path__[0]) / "wait_for_dpkg.py").read_text()


@operation()
def transaction(plan: Plan) -> Iterator[PyinfraCommand]:
    """Bring every package of the lock to its version and its content, and hold what is to be held."""
    found = yield from differences(plan, ["packages", "holds", "contents"])
    if not found:
        return
    probe = this_probe(plan)
    apart = [one.name for one in plan.lock.packages.values() if one.apart]
    what = plan_transaction(plan.desired, found, probe.part("packages"), apart)
    changed()
    yield FunctionCommand(carry_out, (plan, probe, what), {})


class _Stop(Exception):
    """Why the transaction ends here."""


def carry_out(state: State, host: Host, plan: Plan, probe: Probe, what: Transaction) -> bool:
    """Do it; False, with the reason logged, if it was refused or failed."""
    shell = _Shell(host, bool(host.data.get("_sudo", False)))
    commands = Commands(plan.lock, plan.node.target, new_folder())
    try:
        shell.ask(commands.wait(), stdin=_WAIT, timeout=7200)
        if what.install or what.reinstall:
            _install(host, shell, commands, plan, probe, what)
        else:
            shell.ask(commands.hold(what.hold))
    except _Stop as why:
        host.log(str(why), logger.error)
        return False
    return True


def _install(host: Host, shell: _Shell, commands: Commands, plan: Plan, probe: Probe, what: Transaction) -> None:
    packages = probe.part("packages")
    try:
        shell.ask(commands.prepare())
        if plan.node.target == "image":
            shell.ask(commands.no_start())
        if any(one["status"][1:2] in "UFHWt" for one in packages.values()):
            # a node that lost power in a transaction is finished first; what this can't do, apt will say
            shell.run(commands.finish(), timeout=TIMEOUT)
        done, output = shell.run(commands.update(), timeout=600)
        if not done:
            raise _Stop(aptsays.why_no_update(output))
        recorded = aptsays.read_record(shell.run(f"cat {FAMILIES}")[1])
        # all of it first: when it is refused, nothing has been changed
        what, said = _simulated(shell, commands, plan, what, recorded, packages)
        for line in said.back:
            host.log(f"{NOTE}goes back, as the lock says: {line}", logger.info)
        if said.replaced:
            host.log(f"{NOTE}replaced by this lock's: {', '.join(said.replaced)}", logger.info)
        steps = what.steps()
        for number, step in enumerate(steps):
            if number:
                # preferences came with the step before, and govern this one
                _simulated(shell, commands, plan, step, recorded, {**packages, **_versions(steps[0])})
            shell.ask(commands.change(step), timeout=TIMEOUT)
        if left := sorted(set(what.hold) - {name for step in steps for name in step.hold}):
            shell.ask(commands.hold(left))
    finally:
        shell.run(commands.clean())


def _versions(step: Transaction) -> dict[str, dict[str, object]]:
    """What a step has installed, as a probe has it."""
    return {name: {"version": version} for name, version in (one.split("=", 1) for one in step.install)}


def _simulated(
    shell: _Shell, commands: Commands, plan: Plan, what: Transaction, recorded: Mapping[str, str],
    packages: Mapping[str, Mapping[str, object]],
) -> tuple[Transaction, aptsays.Said]:  # fmt: skip
    """The transaction as it can be done, and what apt says of it. Where it can't be, an earlier lock's packages may
    have to go."""
    done, output = shell.run(commands.simulate(what), timeout=300)
    outdated = aptsays.outdated(plan.lock, recorded) & packages.keys()
    if not done and outdated:
        what = what.replacing(outdated, [name for name in outdated if packages[name].get("held")])
        again, said = shell.run(commands.simulate(what), timeout=300)
        done, output = again, said if again else output
    if not done:
        raise _Stop(f"apt can't do this; nothing was changed: {aptsays.why_not(output)}")
    said_of_it = aptsays.read_simulation(output, plan.lock, recorded, packages)
    if said_of_it.refused:
        raise _Stop(
            f"refused, nothing was changed: {aptsays.shown(said_of_it.refused)}. "
            "Remove by hand what stands in the way, or add it to the image."
        )
    return what, said_of_it


@dataclass(frozen=True)
class _Shell:
    """Commands on the host, as root."""

    host: Host
    sudo: bool

    def run(self, command: str, *, timeout: int = 120, stdin: str | None = None) -> tuple[bool, str]:
        """Whether it succeeded, and all that it said."""
        more = {"_stdin": stdin} if stdin is not None else {}
        done, output = self.host.run_shell_command(StringCommand(command), _timeout=timeout, _sudo=self.sudo, **more)
        return done, f"{output.stdout}\n{output.stderr}".strip()

    def ask(self, command: str, *, timeout: int = 120, stdin: str | None = None) -> None:
        """Run what must succeed."""
        done, output = self.run(command, timeout=timeout, stdin=stdin)
        if not done:
            raise _Stop(aptsays.why_not(output))
