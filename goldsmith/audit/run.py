"""An audit: probe all nodes at once, judge each, compare them with each other. It changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from goldsmith.audit.census import census, fingerprint
from goldsmith.audit.findings import judge
from goldsmith.errors import GoldsmithError
from goldsmith.fleet.answer import Answer
from goldsmith.fleet.saved import read_saved, save
from goldsmith.fleet.ssh import probe_nodes
from goldsmith.inventory.site import Site
from goldsmith.model.finding import Finding, Severity, worst
from goldsmith.model.node import Node
from goldsmith.plan import Plan, plan_node
from goldsmith.probe.bundle import part_name


@dataclass(frozen=True)
class Audit:
    """findings: of all nodes, worst first. fingerprints: node → the same for nodes that are the same.
    locks: image → its lock's digest. seconds: from the first connection to the last answer."""

    site: str
    nodes: tuple[str, ...]
    findings: tuple[Finding, ...]
    fingerprints: dict[str, str]
    locks: dict[str, str]
    started: str
    seconds: float
    deep: bool
    saved: bool = False

    @property
    def severity(self) -> Severity:
        return worst([one.severity for one in self.findings])


def audit_site(
    site: Site,
    limit: str | None = None,
    *,
    deadline: float = 30.0,
    deep: bool = False,
    saved: Path | None = None,
    save_to: Path | None = None,
    told: Callable[[Answer], None] | None = None,
) -> Audit:
    """Audit a site's nodes.

    limit: node set or group. deadline: seconds a node has to answer. deep: hash large libraries and import torch.
    saved: judge these saved probes instead of asking. save_to: keep the probes there. told: progress.
    A node whose own inventory data is wrong is an error of the site, not a finding: it raises GoldsmithError.
    """
    plans = {name: plan_node(site, name) for name in site.select(limit)}
    return audit_plans(site.path, plans, deadline=deadline, deep=deep, saved=saved, save_to=save_to, told=told)


def audit_plans(
    site: str,
    plans: dict[str, Plan],
    *,
    deadline: float = 30.0,
    deep: bool = False,
    patience: float = 1.0,
    saved: Path | None = None,
    save_to: Path | None = None,
    told: Callable[[Answer], None] | None = None,
) -> Audit:
    """Audit nodes by their plans, as `audit_site` does.

    site: what the report calls them together. patience: what the probe's own deadlines are multiplied by; `deadline`
    isn't.
    """
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    clock = time.monotonic()
    answers = _ask(plans, deadline, deep, patience, saved, told)
    seconds = time.monotonic() - clock
    if save_to:
        save(save_to, answers)
    findings = [finding for answer in answers for finding in judge(plans[answer.node], answer)]
    findings += _census(plans, answers, findings)
    return Audit(
        site=site,
        nodes=tuple(plans),
        findings=tuple(sorted(findings, key=lambda one: -one.severity.rank)),
        fingerprints={one.node: fingerprint(one.probe) for one in answers if one.probe},
        locks={plan.lock.image: plan.lock.digest for plan in plans.values()},
        # of saved probes, when they were taken: an old answer mustn't look like a new one
        started=min([one.probe.started for one in answers if one.probe] or [started]) if saved else started,
        seconds=round(seconds, 2),
        deep=deep,
        saved=saved is not None,
    )


def _ask(
    plans: dict[str, Plan],
    deadline: float,
    deep: bool,
    patience: float,
    saved: Path | None,
    told: Callable[[Answer], None] | None,
) -> list[Answer]:
    nodes = [plan.node for plan in plans.values()]
    if saved:
        return read_saved(saved, nodes)
    scripts: dict[str, str] = {}

    def script(node: Node) -> str:
        # nodes of one image mostly ask the same; building the script is the larger part of asking
        plan = plans[node.name]
        key = f"{plan.desired.digest()} {sorted(plan.want(deep=deep)['variables'].items())!r}"
        if key not in scripts:
            scripts[key] = plan.script(deep=deep, patience=patience)
        return scripts[key]

    # a deep probe imports torch and reads gigabytes
    return probe_nodes(nodes, script, deadline=max(deadline, 300.0) if deep else deadline, told=told)


def _census(plans: dict[str, Plan], answers: Sequence[Answer], findings: list[Finding]) -> list[Finding]:
    """Between nodes of the same image; each image's nodes are their own crowd.

    What a role promises was compared with the promise already, and what a role has told of any node explains
    what else its probe saw there (an edited nccl.conf: its keys): the census is about the rest.
    """
    found: list[Finding] = []
    for image in sorted({plan.node.image for plan in plans.values()}):
        crowd = {name: plan for name, plan in plans.items() if plan.node.image == image}
        judged = {f"{kind} {key}" for plan in crowd.values() for kind, key in plan.promised()}
        # told as packages that the lock doesn't know, once a node
        judged |= {f"packages {name}" for one in answers if one.probe for name in one.probe.part("packages")}
        judged |= {part_name(one.check.split(".")[0]) for one in findings if one.node in crowd}
        found += census([one.probe for one in answers if one.probe and one.node in crowd], judged)
    return found


def exit_code(audit: Audit) -> int:
    """0 OK, 1 WARN, 2 FAIL, 3 UNKNOWN (the Nagios contract)."""
    return int(audit.severity)


def require_nodes(audit: Audit) -> None:
    """An audit of nothing proves nothing."""
    if not audit.nodes:
        raise GoldsmithError("no node to audit", where=audit.site, hint="look at --limit")
