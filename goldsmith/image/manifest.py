"""The manifest: what a finished tree says of itself, read back from it and compared with what was to be
built.

It isn't copied from the lock: a step that was skipped would then be missing in the image and present in its
papers (azhpc#543). A difference fails the build.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from goldsmith.compare import Difference, compare
from goldsmith.errors import GoldsmithError
from goldsmith.fleet.rootfs import probe_tree
from goldsmith.image.artifact import SCHEMA
from goldsmith.image.formats import Made
from goldsmith.image.pack import Packed
from goldsmith.model.finding import Finding, Severity
from goldsmith.model.lock import Lock
from goldsmith.model.probe import Probe, parse_probe
from goldsmith.plan import Plan

PROBE_SECONDS = 300.0  # the longest that all parts together may take
# A busy builder may be slow to answer, and what isn't known can't be in a manifest.
PATIENCE = 5.0


def read_back(plan: Plan, tree: Path) -> Probe:
    """Probe the finished tree and compare it with the plan.

    Raises GoldsmithError that names every package, file and unit that isn't as promised, and every package
    that the lock doesn't have.
    """
    probe = parse_probe(plan.node.name, probe_tree(tree, plan.script(patience=PATIENCE), PROBE_SECONDS))
    problems = [sentence(one) for one in compare(plan.desired, probe)]
    problems += [f"{part} could not be read: {error}" for part, error in probe.errors.items()]
    problems += strangers(plan.lock.packages, probe.part("packages"))
    for role in plan.roles:
        facts = probe.part(f"role.{role.name}")
        problems += unmet(role.check(plan.node, plan.lock, facts) if facts else ())
    if problems:
        shown = "\n  ".join(problems[:20])
        more = f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise GoldsmithError(
            f"the finished tree differs from its lock and its roles' promises:\n  {shown}{more}",
            where=f"images/{plan.node.name}",
            hint="nothing was written; the roles, or what they call, did not do what they promise",
        )
    return probe


def unmet(findings: Iterable[Finding]) -> list[str]:
    """What a role finds wrong in the tree, or couldn't tell: neither may be in an image."""
    return [
        f"{one.fact}: expected {one.expected}, found {one.actual}" if one.severity is Severity.FAIL
        else f"{one.fact}: expected {one.expected}, could not be told: {one.actual}"
        for one in findings if one.severity in (Severity.FAIL, Severity.UNKNOWN)
    ]  # fmt: skip


def sentence(difference: Difference) -> str:
    """A difference in one line."""
    return f"{difference.kind} {difference.key}: expected {difference.expected}, found {difference.actual}"


def strangers(locked: Mapping[str, Any], installed: Mapping[str, Any]) -> list[str]:
    """Packages that are installed and not in the lock, one sentence each."""
    return [
        f"packages {name}: not in the lock, found {found.get('version')}"
        for name, found in installed.items()
        if name not in locked and str(found.get("status", " i"))[1:2] == "i"
    ]


def with_formats(manifest: Mapping[str, Any], formats: Mapping[str, Made], tools: Mapping[str, str]) -> dict[str, Any]:
    """The manifest of the same tree with these formats, which these tools (name → version) wrote."""
    return {**manifest, "formats": {name: asdict(one) for name, one in formats.items()}, "tools": dict(tools)}


def manifest(plan: Plan, probe: Probe, packed: Packed, key: str) -> dict[str, Any]:
    """manifest.json without its formats: the tree's digest, and what the tree said."""
    lock = plan.lock
    packages = {
        name: {
            "version": found["version"],
            "architecture": lock.packages[name].architecture,
            "sha256": lock.packages[name].sha256,
            "held": bool(found.get("held")),
            "source": lock.packages[name].source,
            "repository": lock.packages[name].repository,
        }
        for name, found in sorted(probe.part("packages").items())
        if name in lock.packages
    }
    files = {
        path: {
            "sha256": found["sha256"],
            "mode": f"{found['mode']:04o}",
            "owner": found["owner"],
            "group": found["group"],
        }
        for path, found in sorted(probe.part("files").items())
    }
    return {
        "schema": SCHEMA,
        "image": lock.image,
        "key": key,
        "created": lock.created,
        "base": {"distribution": lock.distribution, "release": lock.release, "architecture": lock.architecture},
        "lock": {"digest": lock.digest, "image_digest": lock.image_digest},
        "desired": plan.desired.digest(),
        "tree": {"size": packed.tree_size, "sha256": packed.tree_sha256},
        "command_line": sorted(plan.desired.parameters),
        "packages": packages,
        "environments": {
            name: _projects(lock, name, found["folders"].get(found["link"], {}).get("projects", {}))
            for name, found in sorted(probe.part("environments").items())
        },
        "files": files,
        "units": _lasting(probe.part("units")),
        # every role's own facts: module versions, the library's answer, environments and their wheels
        "roles": {role.name: _lasting(probe.part(f"role.{role.name}")) for role in plan.roles},
        "os": _lasting(probe.part("os")),
        "kernel": _lasting(probe.part("kernel")),
    }


def _projects(lock: Lock, environment: str, found: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Project → what is installed, and the digest of the wheel that the lock has of it."""
    locked = lock.environments[environment].wheels if environment in lock.environments else {}
    return {
        name: {"version": version, "sha256": locked[name].sha256 if name in locked else ""}
        for name, version in sorted(found.items())
    }


# Facts of the machine and the minute that built it, not of the image.
_PASSING = ("running", "since", "mtime", "ctime", "boot_id", "uptime_s", "hostname", "cmdline", "reboot")


def _lasting(facts: Any) -> Any:
    """The facts without those that another build of the same image would have otherwise."""
    if isinstance(facts, Mapping):
        return {str(key): _lasting(value) for key, value in facts.items() if key not in _PASSING}
    return [_lasting(one) for one in facts] if isinstance(facts, (list, tuple)) else facts
