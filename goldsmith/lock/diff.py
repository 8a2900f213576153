"""What changes from one lock to another, as a person asks it: which families move, and what that does to a node.

Pure; `goldsmith lock diff A B` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from goldsmith.lock.version import sort_key
from goldsmith.model.lock import Lock, LockedPackage, LockedWheel

OTHERS = "other packages"


@dataclass(frozen=True)
class Change:
    """One package or wheel. old and new: versions, None where it isn't there; the same where only its content, or its
    family, is another (a rebuild under an old number). group: the family, `python NAME`, or OTHERS. units: those that
    it brings."""

    name: str
    group: str
    old: str | None
    new: str | None
    units: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        if self.old is None or self.new is None:
            return "added" if self.old is None else "removed"
        if self.old == self.new:
            return "rebuilt"
        return "upgraded" if sort_key(self.old) < sort_key(self.new) else "downgraded"


def changes(old: Lock, new: Lock) -> list[Change]:
    """Every package and wheel that differs, families in their order, each by name."""
    found = [*_packages(old, new), *_wheels(old, new)]
    order = {name: number for number, name in enumerate(_groups(old, new))}
    return sorted(found, key=lambda one: (order.get(one.group, len(order)), one.group == OTHERS, one.group, one.name))


def _groups(old: Lock, new: Lock) -> list[str]:
    """The kernel first, then the other families."""
    families = {one.family for lock in (new, old) for one in lock.packages.values() if one.family}
    return sorted(families, key=lambda name: (name != "kernel", name != "driver", name))


def _packages(old: Lock, new: Lock) -> Iterator[Change]:
    for name in sorted({*old.packages, *new.packages}):
        before, after = old.packages.get(name), new.packages.get(name)
        if before and after and _identity(before) == _identity(after):
            continue
        one = after or before
        assert one is not None
        units = {unit for package in (before, after) if package for unit in package.units}
        yield Change(name, one.family or OTHERS, _version(before), _version(after), tuple(sorted(units)))


def _wheels(old: Lock, new: Lock) -> Iterator[Change]:
    for environment in sorted({*old.environments, *new.environments}):
        before, after = old.environments.get(environment), new.environments.get(environment)
        wheels = [one.wheels if one else {} for one in (before, after)]
        for name in sorted({*wheels[0], *wheels[1]}):
            was, is_ = wheels[0].get(name), wheels[1].get(name)
            if was and is_ and (was.sha256, was.version) == (is_.sha256, is_.version):
                continue
            yield Change(name, f"python {environment}", _version(was), _version(is_))


def _identity(one: LockedPackage) -> tuple[str, str, str | None]:
    return one.sha256, one.version, one.family


def _version(one: LockedPackage | LockedWheel | None) -> str | None:
    return one.version if one else None


@dataclass(frozen=True)
class Effect:
    """What a change of these packages does. packages: a pattern over names; group: over families."""

    what: str
    packages: str = r".*"
    group: str = r".*"

    def fits(self, change: Change) -> bool:
        return bool(re.fullmatch(self.packages, change.name) and re.fullmatch(self.group, change.group))


# The order is that of the output: the dearest first.
EFFECTS = (
    Effect("reboot: another kernel", packages=r"linux-image-[0-9].*"),
    Effect("reboot: the first programs of the boot are others", packages=r"systemd|libc6|dracut|initramfs-tools-core"),
    Effect(
        "DKMS builds the modules anew, for the image's kernel (minutes a node, seconds from a golden image)",
        packages=r".*-dkms(-.*)?|linux-headers-[0-9].*",
    ),
    Effect(
        "reboot, or unload the driver's modules: a loaded module and another library fail every CUDA call",
        packages=r".*nvidia.*(dkms|kernel-source|kernel-common|firmware).*|nvidia-firmware-.*|linux-modules-nvidia-.*",
    ),
    Effect("jobs: drain GPU jobs first, running ones lose the driver's library", group=r"driver|fabricmanager|imex"),
    Effect(
        "jobs: none while a node changes; ranks of one job must all see the same libraries",
        group=r"cuda|cudnn|nccl|rdma|python .*|pytorch",
    ),
)


def effects(changed: Iterable[Change]) -> list[tuple[str, list[str]]]:
    """effect → the packages it is for. Restarts of units come last, from the units in the packages themselves."""
    changed = list(changed)
    told = [(one.what, [change.name for change in changed if one.fits(change)]) for one in EFFECTS]
    units: dict[str, list[str]] = {}
    for change in changed:
        for unit in change.units:
            units.setdefault(unit, []).append(change.name)
    restarts = [(f"{unit} restarts where it runs", names) for unit, names in sorted(units.items()) if "@" not in unit]
    return [(what, names) for what, names in [*told, *restarts] if names]


def text(old: Lock, new: Lock) -> str:
    """The difference, for people: grouped by family, then what it does to a node."""
    changed = changes(old, new)
    if not changed:
        return "the same packages and wheels"
    lines = []
    for group in dict.fromkeys(one.group for one in changed):
        lines.append(f"{group}:")
        lines += [f"  {_line(one)}" for one in changed if one.group == group]
    if told := effects(changed):
        lines.append("what it does to a node:")
        lines += [f"  {what} ({_some(names)})" for what, names in told]
    lines.append(_summary(changed))
    return "\n".join(lines)


def _line(one: Change) -> str:
    if one.kind == "rebuilt":
        return f"{one.name} {one.old}: other content under the same version"
    note = "  (a downgrade)" if one.kind == "downgraded" else ""
    return f"{one.name} {one.old or 'not there'} → {one.new or 'removed'}{note}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _summary(changed: list[Change]) -> str:
    counts = {kind: sum(one.kind == kind for one in changed) for kind in
              ("upgraded", "downgraded", "rebuilt", "added", "removed")}  # fmt: skip
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
