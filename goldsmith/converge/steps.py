"""The steps of a deploy, for the host in pyinfra's context. Each is a few operations with stable names."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pyinfra import host, logger
from pyinfra.api import FunctionCommand, operation
from pyinfra.api.command import PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from goldsmith.compare import Difference, Kind
from goldsmith.converge.host import differences
from goldsmith.converge.operations import apt, files, kernel, python, systemd
from goldsmith.model.finding import Severity
from goldsmith.plan import Plan
from goldsmith.role import Role

# What a deploy can bring about, whatever a reboot may add.
_READ_BACK: tuple[Kind, ...] = (
    "packages", "holds", "contents", "environments", "files", "stale", "pending", "units",
)  # fmt: skip
# One stamp a run: all that it replaces is found under one name in /var/backups/goldsmith.
_STAMP = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def before_packages(plan: Plan) -> None:
    """What must be there before any package is touched: apt's configuration, masks, module blacklists.

    And what earlier deploys left: a stale pin or source counts in the transaction, too.
    """
    for one in plan.roles:
        if _has(plan, "files", one, before=True):
            files.managed(plan, one.name, True, _STAMP, name=f"{one.name}: files before packages")
        if _has(plan, "units", one, before=True):
            systemd.units(plan, one.name, True, name=f"{one.name}: units before packages")
    files.leftovers(plan, _STAMP, name="files that no role promises, reloads still due")


def packages(plan: Plan) -> None:
    """All packages of all roles, in one transaction."""
    apt.transaction(plan, name="packages")


def environments(plan: Plan) -> None:
    """All Python environments of all roles, each made anew or linked to."""
    if plan.desired.environments:
        python.environments(plan, _STAMP, name="Python environments")


def role(plan: Plan, one: Role) -> None:
    """A role's files, units, modules and sysctls, then what its own deploy.py does."""
    if _has(plan, "files", one, before=False):
        files.managed(plan, one.name, False, _STAMP, name=f"{one.name}: files")
    if _has(plan, "units", one, before=False):
        systemd.units(plan, one.name, False, name=f"{one.name}: units")
    if _owns(plan, "modules", one) or _owns(plan, "sysctls", one):
        kernel.live(plan, one.name, name=f"{one.name}: running kernel")
    if plan.whole:
        one.deploy(plan.node, plan.lock)


def read_back(plan: Plan) -> None:
    """Look once more: what deploy can bring about must now be so. Nothing changed, nothing to read back."""
    _read_back(plan, name="read back")


@operation()
def _read_back(plan: Plan) -> Iterator[PyinfraCommand]:
    left = remaining((yield from differences(plan, _READ_BACK)))
    # while predicting this is what an earlier operation will do; when it runs, that has been done
    if left and host.state.is_executing:
        yield FunctionCommand(_report, (left,), {})


def remaining(found: list[Difference]) -> list[Difference]:
    """The differences that a deploy should have removed. What only a reboot or a driver can change isn't."""
    return [one for one in found if not one.live and one.severity is not Severity.UNKNOWN]


def _report(state: State, host: Host, left: list[Difference]) -> bool:
    for one in left[:10]:
        host.log(f"still not as promised: {one.key}: expected {one.expected}, found {one.actual}", logger.error)
    return False


def _has(plan: Plan, kind: str, one: Role, *, before: bool) -> bool:
    resources = getattr(plan.desired, kind)
    return any(
        resource.before_packages == before and plan.desired.owner[kind, key] == one.name
        for key, resource in resources.items()
    )


def _owns(plan: Plan, kind: str, one: Role) -> bool:
    return any(plan.desired.owner[kind, key] == one.name for key in getattr(plan.desired, kind))
