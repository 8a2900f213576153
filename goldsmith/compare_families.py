"""What may move a family apart from its lock: other packages of the same sources, and an apt that isn't pinned."""

from __future__ import annotations

from collections.abc import Iterator

from goldsmith.difference import Difference
from goldsmith.model.desired import Desired
from goldsmith.model.finding import Severity
from goldsmith.model.probe import Probe
from goldsmith.model.resource import Package


def strays(desired: Desired, probe: Probe) -> Iterator[Difference]:
    """Packages that no lock knows, built from the same source as held ones: they move with them, or break them.

    Holds that covered a part of what is installed let the rest move (lyulyul/shine-cluster#30, #50). So they are held,
    too; and never removed, for somebody has put them there.
    """
    families: dict[str, list[Package]] = {}
    for one in desired.packages.values():
        if one.held and one.source:
            families.setdefault(one.source, []).append(one)
    for name, found in probe.part("packages").items():
        family = families.get(found.get("source", name.split(":")[0]))
        if not family or name in desired.packages:
            continue
        role = desired.owner.get(("packages", family[0].name), "")
        versions = sorted({one.version for one in family})
        same = found["version"] in versions
        yield Difference(
            "strays", name, f"not there, or in the lock at {' or '.join(versions)}",
            found["version"] + ("" if same else ": half a family"), Severity.WARN if same else Severity.FAIL,
            evidence=(f"built from {found.get('source', name)}, as {family[0].name} {family[0].version} of the lock",),
            since=found.get("since", ""), role=role,
        )  # fmt: skip
        if not found["held"]:
            evidence = (f"no hold on {name} in dpkg's status",)
            yield Difference("holds", name, "held", "not held", Severity.WARN, evidence=evidence, role=role)


def pins(desired: Desired, probe: Probe) -> Iterator[Difference]:
    """Held packages of which apt would take another version, if there were one."""
    held = {one.name: one for one in desired.packages.values() if one.held}
    for name, found in probe.part("candidates").items():
        package = held.get(name)
        if package is None or found["candidate"] in (None, package.version):
            continue
        taken = "any higher version that a source has" if found["candidate"] == "higher" else found["candidate"]
        yield Difference(
            "pins", name, f"apt takes no version but {package.version}", f"apt would take {taken}",
            evidence=(f"apt-cache policy {name}: {package.version} has priority {found['priority']}",), live=True,
        )  # fmt: skip
