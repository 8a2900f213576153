"""The layer of packages: the base system with all packages and Python environments of the image, before any role's own
files. It is kept by content, so that a build after a change in a role takes seconds and not minutes.

Every build goes through it, the first as the tenth: an image can't come out differently for having been built before.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from goldsmith import process, processes
from goldsmith.converge.run import converge_tree
from goldsmith.image.dkms import Works, build_modules
from goldsmith.image.dkms_cache import ModuleCache
from goldsmith.lock.patches import locked_patches
from goldsmith.plan import Plan, packages_alone
from goldsmith.progress import step
from goldsmith.removal import remove_tree

# Counted up when a layer of the same plan comes out differently.
RULES = 1


def layer_key(plan: Plan, base: Path, engine: str) -> str:
    """Changes when the layer could come out differently. base: its folder's name tells its content. engine: the digest
    of the engine's sources that converge a tree.
    """
    first = packages_alone(plan)
    data = {"rules": RULES, "base": base.name, "lock": plan.lock.digest, "desired": first.desired.digest(),
            "roles": [role.name for role in plan.roles], "engine": engine}  # fmt: skip
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def packages_layer(plan: Plan, base: Path, engine: str, project: Path, state: Path) -> Path:
    """The layer, as a folder that nobody writes into; made unless it is there, and then the image's earlier ones go.

    base: the base system, as a folder. Raises GoldsmithError; then nothing half made is left.
    """
    image = plan.node.name
    path = base.parent / f"packages-{layer_key(plan, base, engine)[:16]}"
    if path.is_dir():
        return path
    making = Path(tempfile.mkdtemp(prefix=".packages-", dir=base.parent))
    try:
        copy(base, making / "tree", "the base system")
        with step(f"install the packages of {image}") as now, running_in(making / "tree"):
            converge_tree(making / "tree", image, project, state / "pool", now.say, whole=False)
        # a build that takes nothing kept has its layers elsewhere, and its modules beside them
        kept = state / "dkms" if base.parent.parent == state / "build" else base.parent / "dkms"
        works = Works(making / "tree", plan.lock, ModuleCache(kept, state), state / "build", plan.lock.epoch)
        with running_in(making / "tree"):
            build_modules(works, locked_patches(project / "images" / image, plan.lock))
        os.rename(making / "tree", path)
    finally:
        remove_tree(making, state)
    for old in base.parent.glob("packages-*"):
        if old != path:
            remove_tree(old, state)
    return path


def copy(source: Path, target: Path, what: str) -> None:
    """Copy a tree, all that is in it as it is."""
    with step(f"copy {what}"):
        process.run(
            ["cp", "--archive", "--reflink=auto", "--one-file-system", "--", source, target],
            timeout=600,
            what=f"copy {what}",
        )


@contextmanager
def running_in(tree: Path) -> Iterator[None]:
    """While the block runs, commands may run in the tree; none does after it, however it ends."""
    try:
        yield
    finally:
        # an interrupted converge may leave a command running in the tree; systemd-nspawn ends it on SIGTERM
        processes.stop(processes.find(f"--directory={tree}"), patience=10)
