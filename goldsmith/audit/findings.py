"""From answers to findings: what the lock and the roles say about each node."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from goldsmith.compare import Difference, Kind, compare
from goldsmith.fleet.answer import Answer
from goldsmith.model.finding import Finding, Severity
from goldsmith.model.probe import Probe
from goldsmith.plan import Plan
from goldsmith.probe.bundle import expected_parts, part_name

# The stable id of each kind of difference, after the role's name.
CHECKS: dict[Kind, str] = {
    "packages": "package", "holds": "hold", "strays": "stray-package", "pins": "pin",
    "contents": "package-content", "files": "file",
    "stale": "stale-file", "pending": "pending-reload", "units": "unit",
    "modules": "module", "sysctls": "sysctl", "parameters": "kernel-parameter", "environments": "environment",
}  # fmt: skip


def judge(plan: Plan, answer: Answer) -> list[Finding]:
    """Everything that is to be said of one node, worst first; nothing if it is as it should be.

    An answer of the right schema may still hold anything (a broken disk, a hostile node): what can't be judged is
    one UNKNOWN of that node, and never the end of the audit of all others.
    """
    try:
        return _judge(plan, answer)
    except Exception as error:
        return [
            Finding(
                answer.node, "goldsmith.judged", Severity.UNKNOWN, "the node", "facts in the probe's form",
                f"facts that can't be judged: {type(error).__name__}: {error}", source="the audit itself",
                remedy="look at its probe: goldsmith probe --site {site} --node {nodes}".replace(
                    "{site}", plan.site or "SITE"),
            )
        ]  # fmt: skip


def _judge(plan: Plan, answer: Answer) -> list[Finding]:
    if answer.probe is None:
        return [
            Finding(answer.node, "goldsmith.reachable", Severity.UNKNOWN, "the node", "an answer", answer.reason,
                    source="the audit itself", remedy=answer.remedy)
        ]  # fmt: skip
    probe = answer.probe
    of_roles = list(_of_roles(plan, probe))
    different = compare(plan.desired, probe)
    # a role's own check of a library knows more of it than that its bytes differ: that is told once
    known = {one.fact for one in of_roles}
    found = [
        *_asking(plan, probe),
        *(
            _of_difference(plan, probe, one)
            for one in _gathered(plan, different)
            if not (one.kind == "contents" and one.key in known)
        ),
        *of_roles,
        *_of_node(plan, probe, {one.key for one in different if one.kind == "strays"}),
    ]
    return sorted(found, key=lambda one: -one.severity.rank)


def _gathered(plan: Plan, found: list[Difference], most: int = 3) -> Iterator[Difference]:
    """The same differences, with a role's many missing packages as one: a bare node lacks a hundred."""
    missing: dict[str, list[Difference]] = {}
    for one in found:
        if one.kind == "packages" and one.actual == "not installed":
            missing.setdefault(plan.role_of(one), []).append(one)
        else:
            yield one
    for group in missing.values():
        if len(group) <= most:
            yield from group
            continue
        names = [one.key for one in group]
        evidence = tuple(", ".join(names[start : start + 6]) for start in range(0, min(len(names), 30), 6))
        yield replace(
            group[0], expected="installed", actual=f"{len(names)} packages of this role aren't installed",
            evidence=(*evidence, *([f"… and {len(names) - 30} more"] if len(names) > 30 else [])),
        )  # fmt: skip


def _asking(plan: Plan, probe: Probe) -> Iterator[Finding]:
    """Parts that failed, and a probe that wasn't root: what it couldn't see is UNKNOWN, never OK."""
    if probe.target != plan.node.target:
        yield Finding(
            probe.node, "goldsmith.probe", Severity.UNKNOWN, "the probe", f"of a {plan.node.target} system",
            f"of a target {probe.target!r}", source="the audit itself", remedy="probe the node again",
        )  # fmt: skip
    for part in expected_parts(plan.roles, plan.node.target, container=probe.container):
        if part not in probe.facts and part not in probe.errors:
            yield Finding(
                probe.node, "goldsmith.probe", Severity.UNKNOWN, f"the probe's part {part}", "facts",
                "the answer lacks it", source="the audit itself", remedy="probe the node again",
            )  # fmt: skip
    if not probe.root:
        yield Finding(
            probe.node, "goldsmith.root", Severity.UNKNOWN, "the probe", "run as root", "run as an ordinary user",
            source="the audit itself", remedy="set ansible_user to root, or ansible_become: true",
        )  # fmt: skip
    roles = {part_name(role.name): role.name for role in plan.roles}
    for part, reason in probe.errors.items():
        owner = roles.get(part)
        yield Finding(
            probe.node, f"{owner or 'goldsmith'}.probe", Severity.UNKNOWN, f"the probe's part {part}", "facts", reason,
            source=f"roles/{owner}/probe.py" if owner else "goldsmith/probe/node",
            remedy="run `goldsmith probe --local` on the node",
        )  # fmt: skip


def _of_difference(plan: Plan, probe: Probe, one: Difference) -> Finding:
    role = plan.role_of(one)
    if one.kind in ("packages", "holds", "strays", "pins", "contents", "environments"):
        source = f"images/{plan.lock.image}/image.lock"
    else:
        source = f"roles/{role}/desired.py"
    return Finding(
        node=probe.node,
        check=f"{role}.{CHECKS[one.kind]}",
        severity=one.severity,
        fact=one.key,
        expected=one.expected,
        actual=one.actual,
        source=source,
        evidence=one.evidence,
        remedy=_remedy(plan, one),
        since=one.since,
    )


def _remedy(plan: Plan, one: Difference) -> str:
    if one.severity is Severity.UNKNOWN:
        return "find out why it couldn't be read; the audit can't say that it is right"
    if one.kind == "parameters" or (one.kind == "modules" and one.actual == "loaded"):
        return "drain the node and reboot it"
    if one.kind == "pins":
        return f"on {{nodes}}: what in /etc/apt/preferences or preferences.d names {one.key} before 00-goldsmith does?"
    if one.kind == "strays":
        return f"add {one.key} to the image and lock it again, or remove it on {{nodes}}; a deploy holds it meanwhile"
    site = plan.site or "SITE"
    return f"goldsmith deploy {site} --limit {{nodes}}"


def _of_roles(plan: Plan, probe: Probe) -> Iterator[Finding]:
    """What each role's checks.py makes of its own facts. A check that breaks is UNKNOWN, not a crash."""
    for role in plan.roles:
        part = part_name(role.name)
        if part not in probe.facts:
            continue
        try:
            for one in role.check(plan.node, plan.lock, probe.facts[part]):
                yield replace(one, remedy=one.remedy.replace("{site}", plan.site or "SITE"))
        except Exception as error:
            yield Finding(
                probe.node, f"{role.name}.check", Severity.UNKNOWN, "the role's own check", "a verdict",
                f"{type(error).__name__}: {error}", source=f"roles/{role.name}/checks.py",
                remedy="a defect of the role, or facts in a form that it doesn't know",
            )  # fmt: skip


def _of_node(plan: Plan, probe: Probe, strays: Collection[str]) -> Iterator[Finding]:
    """What no role promises and every node must be able to say: nothing failed, nothing extra, no reboot due."""
    promised_holds = set(plan.desired.held())
    extra = sorted(
        name for name, one in probe.part("packages").items()
        if one["held"] and name not in promised_holds and name in plan.lock.packages
    )  # fmt: skip
    if extra:
        yield Finding(
            probe.node, "goldsmith.extra-holds", Severity.WARN, "holds that no role promises", "none",
            ", ".join(extra), source=f"images/{plan.lock.image}/image.lock",
            remedy="apt-mark unhold them, or put them into a family of the image",
        )  # fmt: skip
    for unit in probe.part("failed_units").get("items", []):
        if unit not in plan.desired.units:
            yield Finding(
                probe.node, "goldsmith.failed-unit", Severity.WARN, unit, "not failed", "failed",
                source="systemd", evidence=(f"systemctl status {unit}",), remedy=f"journalctl -u {unit}",
            )  # fmt: skip
    for reason in _reboot_reasons(probe):
        yield Finding(
            probe.node, "goldsmith.reboot-needed", Severity.WARN, "reboot", "not needed", reason,
            source="the running kernel", remedy="drain the node and reboot it",
        )  # fmt: skip
    yield from _extra_packages(plan, probe, strays)


def _reboot_reasons(probe: Probe) -> list[str]:
    kernel: Mapping[str, Any] = probe.part("kernel")
    return [str(reason) for reason in kernel.get("reboot", [])]


def _extra_packages(plan: Plan, probe: Probe, strays: Collection[str]) -> Iterator[Finding]:
    """Installed packages that the lock doesn't know: told once a node, since one of them may be the other torch."""
    if not plan.desired.packages:
        return
    extra = sorted(
        f"{name} {one['version']}"
        for name, one in probe.part("packages").items()
        if name not in plan.lock.packages and name not in strays and one["status"][1:2] not in ("c", "n")
    )
    if extra:
        shown = ", ".join(extra[:5]) + (f" and {len(extra) - 5} more" if len(extra) > 5 else "")
        yield Finding(
            probe.node, "goldsmith.extra-packages", Severity.WARN, "packages not in the lock", "none", shown,
            source=f"images/{plan.lock.image}/image.lock", evidence=tuple(extra[5:25]),
            remedy="add them to images/NAME/image.yml and lock again, or remove them on the node",
        )  # fmt: skip
