"""Running a deploy: pyinfra as a child process, and what it did as data.

A process of its own, because pyinfra's command line patches the whole process for gevent.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goldsmith.converge import inventories
from goldsmith.errors import GoldsmithError
from goldsmith.inventory.site import Site, fold, lock_of
from goldsmith.plan import plan_node
from goldsmith.process import WITH_US, Done, run

TIMEOUT = 4 * 3600.0
# How an operation's line begins that a person is to read though nothing failed.
NOTE = "note: "
OnLine = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """changed: node → operations that changed it (or, with --check, would). failed: node → what it said; nodes
    that couldn't be connected to are among them. notes: node → what else a person should know."""

    nodes: tuple[str, ...]
    changed: Mapping[str, list[str]] = field(default_factory=dict)
    failed: Mapping[str, list[str]] = field(default_factory=dict)
    notes: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many operations changed something, over all nodes."""
        return sum(map(len, self.changed.values()))

    def line(self, *, check: bool = False) -> str:
        """The result in one line: how many nodes, how many changes, who failed."""
        text = f"{len(self.nodes)} nodes, {self.count} changes"
        if check and self.count:
            text += " needed"
        if self.changed:
            text += f" on {fold(self.changed)}"
        if self.failed:
            text += f", failed on {fold(self.failed)}"
        return text


def deploy(site: Site, limit: str | None = None, *, check: bool = False, on_line: OnLine | None = None) -> Result:
    """Deploy to a site's nodes, or with `check` only say what a deploy would do.

    limit: a node set or a group. on_line: gets pyinfra's log, line by line. Raises GoldsmithError if pyinfra
    itself failed; a node that failed is in the result.
    """
    names = site.select(limit)
    for name in names:
        plan_node(site, name)  # what is wrong with the site is an error here, not a failure of each node
    # not with_suffix: the site dc1.eu must never be deployed with dc1.py
    face = site.folder.parent / f"{site.folder.name}.py"
    inventory = face if face.is_file() else Path(inventories.__path__[0]) / "site.py"
    # `--dry` with --fail-percent: otherwise the first node that fails ends the whole prediction
    options = ["--dry", "--fail-percent", "100"] if check else ["-y"]
    for name in names:
        options += ["--limit", name]
    environment = {"GOLDSMITH_SITE": str(site.folder)}
    data = _pyinfra(inventory, options, site.project, environment, on_line)
    return read_result(data, names, check=check)


def converge_tree(
    tree: Path, image: str, project: Path, pool: Path, on_line: OnLine | None = None, *, whole: bool = True
) -> Result:
    """Bring a root file system to what its image's roles promise, from the pool alone, without booting it.

    whole: otherwise to `packages_alone` of that.
    """
    environment = {
        "GOLDSMITH_TREE": str(tree), "GOLDSMITH_IMAGE": image, "GOLDSMITH_PROJECT": str(project),
        "GOLDSMITH_POOL": str(pool), "GOLDSMITH_LAYER": "" if whole else "packages",
        "GOLDSMITH_EPOCH": str(lock_of(project, image).epoch),
    }  # fmt: skip
    data = _pyinfra(Path(inventories.__path__[0]) / "tree.py", ["-y"], project, environment, on_line, before=WITH_US)
    result = read_result(data, [f"@rootfs/{tree}"], check=False)
    if result.failed:
        said = "\n  ".join(line for lines in result.failed.values() for line in lines)
        raise GoldsmithError(
            f"the tree could not be brought to what the image's roles promise:\n  {said}", where=f"images/{image}"
        )
    return result


def _pyinfra(
    inventory: Path,
    options: list[str],
    project: Path,
    environment: Mapping[str, str],
    on_line: OnLine | None,
    before: Sequence[str] = (),
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="goldsmith-deploy-") as folder:
        path = Path(folder) / "result.json"
        argv = [*before, sys.executable, "-m", "goldsmith.converge.pyinfra_main", "--json", *options]
        # PYINFRA_YES would turn change detection off, and every --check into "nothing to change" (docs/measured.md)
        ours = {"GOLDSMITH_RESULT": str(path), "PYINFRA_PROGRESS": "off", "PYINFRA_YES": ""}
        done = run(
            [*argv, str(inventory), str(project / "deploy.py")],
            timeout=TIMEOUT,
            what="deploy",
            check=False,
            env={**environment, **ours},
            cwd=project,
            on_line=on_line or (lambda _: None),
        )
        return _load(path, done)


def _load(path: Path, done: Done) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        data = {}
    # the run may have failed before any host was touched: then its own words are all there is
    if not data or (data["code"] != 0 and not data["failed"]):
        raise GoldsmithError(f"pyinfra failed with exit code {done.code}:\n  {done.tail}", where="deploy")
    return data  # type: ignore[no-any-return]


def read_result(data: Mapping[str, Any], names: list[str], *, check: bool) -> Result:
    """What goldsmith.converge.pyinfra_main left, as a Result. `pyinfra --dry` exits with 0 also when it predicts
    changes, so the plan itself is what counts."""
    changed: dict[str, list[str]] = {}
    errors: dict[str, list[str]] = {}
    for one in data["plan"] if check else data["results"]:
        keys = ["hosts_with_change", "hosts_with_conditional_change"] if check else ["success"]
        for host in (host for key in keys for host in one[key]):
            changed.setdefault(host, []).append(one["name"])
        for host in [] if check else one["error"]:
            errors.setdefault(host, []).append(f"failed in `{one['name']}`")
    if strangers := sorted({*changed, *data["failed"]} - set(names)):
        raise GoldsmithError(
            f"pyinfra worked on {', '.join(strangers)}, which was not asked for",
            where="deploy",
            hint="NAME.py beside the site's folder must load that folder: compare inventories/lab.py",
        )
    notes = {
        host: found for host in names
        if (found := [line.removeprefix(NOTE) for line in data["said"].get(host, []) if line.startswith(NOTE)])
    }  # fmt: skip
    # an operation that never ran, since one before it failed, is no reason
    failed = {host: [*errors.get(host, [])[:1], *data["said"].get(host, [])] for host in data["failed"]}
    return Result(
        nodes=tuple(names),
        changed=changed,
        notes=notes,
        failed={host: lines or ["it failed and said nothing"] for host, lines in failed.items()},
    )
