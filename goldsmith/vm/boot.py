"""Booting a built disk: clones of it side by side, what each says of itself, and the audit of all of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from goldsmith.audit.run import Audit, audit_plans
from goldsmith.errors import GoldsmithError
from goldsmith.model.finding import Finding, Severity
from goldsmith.plan import Plan, plan_machine
from goldsmith.progress import step
from goldsmith.vm import reach, running
from goldsmith.vm.machine import Machine
from goldsmith.vm.reach import Login
from goldsmith.vm.running import Running

PROBE_SECONDS = 30.0  # of a real machine
POWER_OFF_SECONDS = 30.0  # of a real machine
LOOK_SECONDS = 15.0  # of a real machine, beside the wait
# One connection, since each costs seconds under emulation. `running`, `degraded` … come with an exit code of their own.
# A job that never ends (a mount that waits, a unit without a timeout) must not be waited for without end, and is named.
_LOOK = """timeout {seconds:.0f} systemctl is-system-running --wait > /dev/null
state=$(systemctl is-system-running)
echo "$state"
uname -r
cat /etc/machine-id /proc/cmdline
systemctl list-units --state=failed --plain --no-legend --no-pager
[ "$state" != starting ] || systemctl list-jobs --plain --no-legend --no-pager | awk '$4 == "running" {{ print $2 }}'"""


@dataclass(frozen=True)
class Booted:
    """What a machine said once it had booted. seconds: from its start until ssh. state: systemd's own word. failed:
    units; where state is `starting`, also those that were still being started."""

    name: str
    accelerator: str
    seconds: float
    state: str
    failed: tuple[str, ...]
    release: str
    machine_id: str
    command_line: str
    host_keys: tuple[str, ...]


@contextmanager
def clones(machines: Sequence[Machine], folder: Path, *, timeout: float | None = None) -> Iterator[list[Login]]:
    """Machines, of one disk or of several, all booting at once; yielded when all are reached, gone at the end.

    folder: empty and private. timeout: seconds until ssh. Raises GoldsmithError with the console's end for one that
    can't be reached.
    """
    key = reach.make_key(folder)
    credentials = {reach.CREDENTIAL: reach.public(key)}
    with ExitStack() as stack:
        started: list[Running] = []
        for machine in machines:
            (folder / machine.name).mkdir(mode=0o700)
            machine = replace(machine, credentials={**machine.credentials, **credentials})
            # what the first one had to try, the others needn't
            known = (started[0].accelerator,) if started else None
            started.append(stack.enter_context(running.start(machine, folder / machine.name, known)))
        logins = []
        for one in started:
            with step(f"boot {one.machine.name} under {one.accelerator.name}") as now:
                logins.append(reach.login(one, one.places.folder, key, timeout, now.say))
                now.result = f"ssh after {time.monotonic() - one.started:.0f} s"
        yield logins


def settle(login: Login, timeout: float | None = None) -> Booted:
    """Wait until systemd has nothing more to start, and ask how it is. timeout: seconds; a machine that is still
    `starting` then is one that isn't `running`. Raises GoldsmithError."""
    one = login.machine
    seconds = time.monotonic() - one.started
    patience = one.accelerator.boot if timeout is None else timeout
    look = _LOOK.format(seconds=patience)
    with step(f"wait until {one.machine.name} has started everything") as now:
        said = login.run(["sh", "-c", look], timeout=patience / one.accelerator.slowness + LOOK_SECONDS, check=False)
        booted = parse_look(said.out, login, seconds)
        now.result = ": ".join([booted.state, *([", ".join(booted.failed)] if booted.failed else [])])
        now.failed = booted.state != "running"
    return booted


def parse_look(text: str, login: Login, seconds: float) -> Booted:
    """What _LOOK printed, as Booted. Raises GoldsmithError."""
    lines = text.splitlines()
    if len(lines) < 4:
        raise GoldsmithError(f"it says too little of itself: {text.strip()!r}", where=login.machine.machine.name)
    state, release, machine_id, command_line = (line.strip() for line in lines[:4])
    failed = tuple(line.split()[0] for line in lines[4:] if line.strip())
    one = login.machine
    return Booted(
        one.machine.name, one.accelerator.name, seconds, state, failed, release, machine_id, command_line,
        login.host_keys,
    )  # fmt: skip


def audit(project: Path, image: str, booted: Sequence[tuple[Login, Booted]]) -> Audit:
    """The audit of booted machines, against their image's lock and roles, with what booting alone shows.

    Raises GoldsmithError.
    """
    plans = {one.name: plan_machine(project, image, one.name, login.ssh) for login, one in booted}
    slowness = max(login.machine.accelerator.slowness for login, _ in booted)
    for login, _ in booted:
        _own_clock(login)
    with step(f"audit {', '.join(plans)}") as now:
        found = audit_plans(f"{image} in QEMU", plans, deadline=PROBE_SECONDS * slowness, patience=slowness)
        findings = [*found.findings, *findings_of(plans, [one for _, one in booted])]
        found = replace(found, findings=tuple(sorted(findings, key=lambda one: -one.severity.rank)))
        now.result = found.severity.name
        now.failed = found.severity is not Severity.OK
    return found


def findings_of(plans: Mapping[str, Plan], booted: Collection[Booted]) -> Iterable[Finding]:
    """What is wrong with how machines booted: units, kernel, command line, and that no two are the same machine."""
    for one in booted:
        plan = plans[one.name]
        source = f"images/{plan.lock.image}/image.lock"
        if one.state != "running":
            yield Finding(
                one.name, "boot.state", Severity.FAIL, "systemd", "running", one.state, source="systemd",
                evidence=one.failed, remedy="systemctl --failed; journalctl -b -p warning",
            )  # fmt: skip
        kernel = plan.lock.kernel
        if kernel and one.release != kernel:
            yield Finding(
                one.name, "boot.kernel", Severity.FAIL, "running kernel", kernel, one.release, source=source,
                evidence=("uname -r",), remedy="look at the disk's boot entries",
            )  # fmt: skip
        missing = [word for word in plan.desired.parameters if word not in one.command_line.split()]
        if missing:
            yield Finding(
                one.name, "boot.command-line", Severity.FAIL, "kernel command line", " ".join(missing), "not there",
                source=source, evidence=(one.command_line,), remedy="build the disk again",
            )  # fmt: skip
    for what in ("machine_id", "host_keys"):
        seen: dict[object, str] = {}
        for one in booted:
            value = getattr(one, what)
            if value in seen:
                fact = what.replace("_", " ")
                yield Finding(
                    one.name, "boot.identity", Severity.FAIL, fact, "its own", f"the same as {seen[value]}'s",
                    source="the other machines", remedy="an image must have none: look at goldsmith/image/identity.py",
                )  # fmt: skip
            seen.setdefault(value, one.name)


def power_off(logins: Sequence[Login]) -> list[str]:
    """Press every power button. Returns the machines that had to be unplugged."""
    stubborn = []
    for login in logins:
        one = login.machine
        with step(f"power off {one.machine.name}") as now:
            if not one.power_off(POWER_OFF_SECONDS * one.accelerator.slowness):
                now.result, now.failed = "it didn't go off, and was unplugged", True
                stubborn.append(one.machine.name)
    return stubborn


def _own_clock(login: Login) -> None:
    """No time server can be reached from in there, so its clock, which is this machine's, is its own reference.

    chrony's way for an isolated network, until it is powered off; without it the audit rightly asks for a server.
    """
    login.run(["sh", "-c", "! command -v chronyc || chronyc local stratum 10"], check=False)
