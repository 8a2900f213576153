"""Core parts: systemd units. Shipped to nodes: Python 3.8, standard library only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goldsmith.probe.node.run import Run

PROPERTIES = "LoadState,UnitFileState,ActiveState,SubState,Result,ConditionResult,ConditionTimestampMonotonic"


def unit_facts(run: Run) -> dict[str, Any]:
    """name → load, state, active, sub, result, condition."""
    names = list(run.want.get("units") or [])
    if not names:
        return {}
    return image_units(run, names) if run.target == "image" else live_units(run, names)


def live_units(run: Run, names: list[str]) -> dict[str, Any]:
    """One call for all: a block a name, in this order (an alias has another name's Id, so it is no key)."""
    done = run(["systemctl", "show", "--no-pager", "--property=" + PROPERTIES, "--", *names])
    if done.code != 0:
        raise RuntimeError("systemctl show: {}".format(done.err.strip() or f"exit {done.code}"))
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
              for block in done.out.strip().split("\n\n")]  # fmt: skip
    if len(blocks) != len(names):
        raise RuntimeError(f"systemctl show: {len(blocks)} answers for {len(names)} units")
    return {name: describe(block) for name, block in zip(names, blocks)}


def describe(block: dict[str, str]) -> dict[str, Any]:
    """A block of `systemctl show`. condition is None where none was ever tried."""
    tried = block.get("ConditionTimestampMonotonic", "0") not in ("", "0")
    return {
        "load": block.get("LoadState", ""),
        "state": block.get("UnitFileState", ""),
        "active": block.get("ActiveState", ""),
        "sub": block.get("SubState", ""),
        "result": block.get("Result", ""),
        "condition": block.get("ConditionResult") == "yes" if tried else None,
    }


def image_units(run: Run, names: list[str]) -> dict[str, Any]:
    """In a tree that isn't running: what its links say. A call a unit: a missing one may print nothing."""
    found = {}
    for name in names:
        link = run.path("/etc/systemd/system/" + name)
        if os.path.islink(link) and os.readlink(link) == os.devnull:
            load, state = "masked", "masked"
        else:
            done = run(["systemctl", "--root=" + (run.root or "/"), "is-enabled", "--", name])
            state = done.out.strip().splitlines()[-1] if done.out.strip() else ""
            if done.code in (124, 126, 127):
                raise RuntimeError(f"systemctl is-enabled: {done.err.strip()}")
            if state == "not-found":
                state = ""
            load = "loaded" if state else "not-found"
            load = "masked" if state.startswith("masked") else load
        found[name] = {"load": load, "state": state, "active": "", "sub": "", "result": "", "condition": None}
    return found


def failed_units(run: Run) -> list[str]:
    """The names of the units that failed."""
    done = run(["systemctl", "list-units", "--failed", "--plain", "--no-legend", "--no-pager"])
    if done.code != 0:
        raise RuntimeError("systemctl list-units: {}".format(done.err.strip() or f"exit {done.code}"))
    return sorted(line.split()[0] for line in done.out.splitlines() if line.strip())
