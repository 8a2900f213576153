"""Python environments against their locks: which project is another one, and which file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from goldsmith.difference import Difference, gap_of, unread
from goldsmith.model.desired import Desired
from goldsmith.model.probe import Probe
from goldsmith.model.resource import PYTHON_ROOT, PythonEnvironment


def environments(desired: Desired, probe: Probe) -> Iterator[Difference]:
    """The folder that an environment's link leads to: whether it is the locked one, and what in it isn't as locked."""
    yield from unread("environments", desired.environments, probe)
    if "environments" not in probe.facts:
        return
    for name, environment in desired.environments.items():
        have: Any = probe.part("environments").get(name)
        if gap := gap_of("environments", name, have):
            yield gap
        elif have["link"] not in have["folders"]:
            said = {None: "not there", "(not a link)": "not a link"}
            there = said.get(have["link"], f"a link to {have['link']}, which is no environment of ours")
            yield Difference("environments", name, f"{len(environment.wheels)} locked wheels", there)
        else:
            yield from environment_faults(environment, have["folders"][have["link"]], have["link"])


def environment_faults(
    environment: PythonEnvironment, have: Mapping[str, Any], folder: str, most: int = 8
) -> Iterator[Difference]:
    """What isn't as locked in one folder of a Python environment; nothing if all is. The key of a project's difference
    is the environment's name and the project's."""
    found = list(_faults(environment, have, folder, most))
    yield from found
    if not found and have["digest"] != environment.digest:
        seen = f"made for {have['digest'][:12]}" if have["digest"] else "never finished"
        expected, evidence = f"made for {environment.digest[:12]}", (f"{PYTHON_ROOT}/{folder}",)
        yield Difference("environments", environment.name, expected, seen, evidence=evidence)


def _faults(
    environment: PythonEnvironment, have: Mapping[str, Any], folder: str, most: int
) -> Iterator[Difference]:  # fmt: skip
    name, projects = environment.name, have["projects"]
    evidence = (f"{PYTHON_ROOT}/{folder}",)
    for project in sorted({*environment.wheels, *projects}):
        wheel, seen = environment.wheels.get(project), projects.get(project)
        if not (wheel and seen and _same(wheel.version, seen)):
            yield Difference(
                "environments", f"{name} {project}", wheel.version if wheel else "not in the lock",
                seen or "not installed", evidence=evidence, since=have["since"].get(project, ""),
            )  # fmt: skip
    for fault, expected, actual in (
        (have["python"] != environment.python, f"Python {environment.python}", f"Python {have['python'] or '?'}"),
        (not have["runs"], "a python that runs", "its bin/python leads nowhere"),
        (have["system_site"], "the locked wheels alone", "the system's packages show through (pyvenv.cfg)"),
    ):
        if fault:
            yield Difference("environments", name, expected, actual, evidence=evidence)
    if count := have["wrong_count"]:
        more = f" and {count - most} more" if count > most else ""
        yield Difference(
            "environments", f"{name} files", "as their projects recorded them", ", ".join(have["wrong"][:most]) + more,
            evidence=evidence, since=have["changed"]["since"],
        )  # fmt: skip


def _same(one: str, other: str) -> bool:
    """Whether two spellings are the same version (PEP 440: 1.0 and 1.0.0; +cu124 counts)."""
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other
