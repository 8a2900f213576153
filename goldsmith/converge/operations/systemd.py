"""Units: enabled, disabled or masked; started and stopped only where systemd runs."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from pyinfra.api import StringCommand, operation
from pyinfra.api.command import PyinfraCommand

from goldsmith.converge.host import changed, differences
from goldsmith.model.node import Target
from goldsmith.model.resource import Unit
from goldsmith.plan import Plan


def commands(unit: Unit, found: str, target: Target) -> list[str]:
    """The commands that bring one unit to its state. found: what it is now, as the difference says."""
    name = quote(unit.name)
    if target == "image":
        # offline: `systemctl enable` on a tree without a running systemd (systemctl(1), --root)
        systemctl, now = "systemctl --root=/", ""
    else:
        systemctl, now = "systemctl", " --now"
    match unit.state:
        case "masked":
            if target == "image":
                return [f"{systemctl} mask {name}"]
            # stopped first: a timer whose service is masked already fails, and stays `failed` for good
            return [
                f"systemctl stop {name} 2>/dev/null || :",
                f"systemctl mask {name}",
                f"systemctl reset-failed {name} 2>/dev/null || :",
            ]
        case "disabled":
            return [f"{systemctl} disable{now} {name}"]
        case "enabled":
            lines = [f"{systemctl} unmask {name}"] if "masked" in found else []
            lines.append(f"{systemctl} enable {name}")
            if target == "live" and unit.running is not False:
                # a unit whose condition isn't met (no GPU) is skipped by start, which is no failure
                lines += [f"systemctl reset-failed {name} 2>/dev/null || :", f"systemctl start {name}"]
            return lines


@operation()
def units(plan: Plan, role: str, before_packages: bool) -> Iterator[PyinfraCommand]:
    """Every unit of a role that isn't as promised."""
    found = yield from differences(plan, ["units"], role)
    for one in found:
        unit = plan.desired.units.get(one.key)
        if unit and unit.before_packages == before_packages:
            changed()
            for line in commands(unit, one.actual, plan.node.target):
                yield StringCommand(line)
