"""Hygiene: what must not be in a finished tree, looked for whoever was to remove it. A finding fails the build."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

from goldsmith.errors import Refused
from goldsmith.image.hygiene import identity, leftovers, packages, privileges, secrets, services
from goldsmith.image.hygiene.rule import Expected, View
from goldsmith.image.tree import Tree
from goldsmith.model.finding import Finding
from goldsmith.model.image import Image
from goldsmith.plan import Plan

RULES = (*identity.RULES, *leftovers.RULES, *secrets.RULES, *privileges.RULES, *services.RULES)
CHECKS = (*(rule.check for rule in RULES), *packages.CHECKS)
# Of one check, so that a thousand files of one mistake don't hide another.
_SHOWN = 8


def expected_of(plan: Plan, image: Image, builder: Sequence[str] = ()) -> Expected:
    """What a plan lets its tree have. builder: words that only the building machine has."""
    desired = plan.desired
    return Expected(
        image=image.name,
        files=set(desired.files),
        enabled={name for name, unit in desired.units.items() if unit.state == "enabled"},
        packages=set(plan.lock.packages),
        privileged=set(image.hygiene.privileged),
        builder=tuple(builder),
    )


def builder_words(project: Path, state: Path) -> list[str]:
    """What only this machine's files name: its name, and the folders that the build is in."""
    names = [os.uname().nodename, socket.gethostname()]
    return list(dict.fromkeys(
        [*names, *(name.partition(".")[0] for name in names),
         *(str(path) for path in (project, state) if len(path.parts) > 2)]
    ))  # fmt: skip


def inspect(tree: Path, expected: Expected) -> list[Finding]:
    """All that is wrong with the tree's files, in the order of the rules. Nothing is changed, and no link followed."""
    with Tree(tree) as opened:
        view = View(opened)
        return [found for rule in RULES for found in rule.findings(view, expected)]


def findings(plan: Plan, image: Image, tree: Path, project: Path, state: Path) -> list[Finding]:
    """All that is wrong with a finished tree, with its files and with its packages. state: has the pool."""
    found = inspect(tree, expected_of(plan, image, builder_words(project, state)))
    return [*found, *packages.ask_packages(image.name, tree, plan.lock, state / "pool")]


def check(plan: Plan, image: Image, tree: Path, project: Path, state: Path) -> None:
    """Look at a finished tree. Raises Refused, which names all that is wrong with it."""
    if found := findings(plan, image, tree, project, state):
        raise Refused(
            f"the finished tree isn't fit to be an image:\n{told(found)}",
            where=f"images/{image.name}",
            hint="nothing was written",
        )


def told(found: Sequence[Finding]) -> str:
    """Findings for people: a check, why it is one and what to do, and under it where."""
    lines = []
    for check in dict.fromkeys(one.check for one in found):
        group = [one for one in found if one.check == check]
        lines.append(f"  FAIL  {check}: {group[0].expected}")
        lines += [f"          {one.fact} {one.actual}" for one in group[:_SHOWN]]
        lines += [f"          … and {len(group) - _SHOWN} more"] if len(group) > _SHOWN else []
        lines.append(f"        do: {group[0].remedy}")
    return "\n".join(lines)
