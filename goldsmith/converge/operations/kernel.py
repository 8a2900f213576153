"""The running kernel's modules and sysctls. Their files are managed files; this makes them so now, where it may.

A container's and an image's kernel is somebody else's: `compare` says no difference there, so nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from pyinfra.api import StringCommand, operation
from pyinfra.api.command import PyinfraCommand

from goldsmith.converge.host import changed, differences
from goldsmith.plan import Plan
from goldsmith.probe.node.system import sysctl_path


def sysctl_command(key: str, value: str) -> str:
    """Write a sysctl without procps, which a minimal image hasn't got, to the path that the probe reads."""
    path = sysctl_path(key)
    return f"printf '%s\\n' {quote(value)} > {quote(path)}"


@operation()
def live(plan: Plan, role: str) -> Iterator[PyinfraCommand]:
    """Load the modules and set the sysctls of a role that differ.

    A blacklisted module that is loaded, or an option of one, takes a reboot: the audit says so, and nothing is
    unloaded here, under a job.
    """
    found = yield from differences(plan, ["modules", "sysctls"], role)
    for one in found:
        if one.kind == "modules" and one.actual == "not loaded":
            changed()
            yield StringCommand(f"modprobe -- {quote(one.key)}")
        elif one.kind == "sysctls" and one.actual != "not in this kernel":
            changed()
            yield StringCommand(sysctl_command(one.key, one.expected))
