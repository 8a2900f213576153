"""The host that pyinfra is working on, as goldsmith sees it: its plan, and how it differs from it right now."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path

from pyinfra import host, logger, state
from pyinfra.api import FunctionCommand
from pyinfra.api.command import PyinfraCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.state import State

from goldsmith.compare import PART, Difference, Kind, compare
from goldsmith.converge.facts.node import NodeProbe
from goldsmith.errors import GoldsmithError
from goldsmith.inventory.site import load_site
from goldsmith.model.finding import Severity
from goldsmith.model.probe import Probe, parse_probe
from goldsmith.plan import Plan, packages_alone, plan_image, plan_node

_PROBE = "goldsmith_probe"
# A person may think at pyinfra's prompt; what was seen before that is looked at again.
_FRESH_SECONDS = 60.0
# A deploy doesn't ask apt for candidates: what overrides our pins isn't ours to change.
_PARTS = sorted(set(PART.values()) - {PART["pins"]})


@cache
def _node_plan(site: str, name: str) -> Plan:
    return plan_node(load_site(Path(site)), name)


@cache
def _image_plan(project: str, image: str, whole: bool) -> Plan:
    plan = plan_image(Path(project), image)
    return plan if whole else packages_alone(plan)


def this_plan() -> Plan:
    """The plan of the host in pyinfra's context."""
    try:
        if image := host.data.get("goldsmith_image"):
            return _image_plan(host.data.goldsmith_project, image, host.data.goldsmith_whole)
        return _node_plan(host.data.goldsmith_site, host.name)
    except GoldsmithError as error:
        raise PyinfraError(str(error)) from None


def this_probe(plan: Plan) -> Probe:
    """What the host says of itself now: one exec, kept until this run changes something on it.

    pyinfra doesn't cache facts, and asks again for each operation in both of its phases (docs/measured.md).
    """
    kept = host.connector_data.get(_PROBE)
    if kept and time.monotonic() - kept[0] < _FRESH_SECONDS:
        return kept[1]  # type: ignore[no-any-return]
    # a fact that fails is None; pyinfra has logged why
    probe = parse_probe(host.name, host.get_fact(NodeProbe, _stdin=plan.script(_PARTS)) or "")
    host.connector_data[_PROBE] = (time.monotonic(), probe)
    return probe


def changed() -> None:
    """The host is about to be changed: what was seen of it is out of date. Nothing happens while predicting."""
    if state.is_executing:
        host.connector_data.pop(_PROBE, None)


def differences(
    plan: Plan, kinds: Iterable[Kind], role: str | None = None
) -> Generator[PyinfraCommand, None, list[Difference]]:
    """How the host differs from the plan, of these kinds, and of one role only if named.

    For operations: `found = yield from differences(…)`. A host that can't be probed fails the operation, with the
    reason; an exception here would end pyinfra's whole run, on all hosts.
    """
    try:
        found = compare(plan.desired, this_probe(plan))
    except GoldsmithError as error:
        yield FunctionCommand(_fail, (str(error),), {})
        return []
    wanted = set(kinds)
    for one in found:
        if one.kind in wanted and one.severity is Severity.UNKNOWN and (role is None or plan.role_of(one) == role):
            # what couldn't be read may need changing: "0 changes" would be a lie, and --check would pass
            yield FunctionCommand(_fail, (f"{one.key}: {one.actual}",), {})
    return [one for one in found if one.kind in wanted and (role is None or plan.role_of(one) == role)]


def _fail(state: State, host: Host, why: str) -> bool:
    host.log(why, logger.error)
    return False
