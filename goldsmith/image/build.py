"""Building an image: base system, the roles, identity removed, read back, packed. The same roles as on
nodes.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

from goldsmith import atomic, process, processes
from goldsmith.converge.run import converge_tree
from goldsmith.errors import GoldsmithError
from goldsmith.holding import holding
from goldsmith.image import identity
from goldsmith.image.artifact import MANIFEST, ROOTFS, Artifact, read_artifact
from goldsmith.image.base import base_path, make_base
from goldsmith.image.manifest import manifest, read_back
from goldsmith.image.pack import Packed, epoch, pack
from goldsmith.image.tree import Tree
from goldsmith.lock.locking import verify
from goldsmith.model.image import Image, read_image
from goldsmith.model.lock import Lock, read_lock
from goldsmith.plan import Plan, plan_image
from goldsmith.progress import console, step
from goldsmith.project import state_dir
from goldsmith.removal import remove_tree

# Counted up when an image of the same sources comes out differently.
RULES = 1
ENGINE = Path(__file__).parent.parent
# The parts of the engine that an image is made by.
ENGINE_PARTS = (
    "converge", "image", "model", "probe", "fleet/rootfs.py", "lock/sources.py", "template.py", "plan.py",
    "compare.py", "compare_families.py", "compare_python.py", "difference.py",
)  # fmt: skip


def default_output(project: Path, image: str) -> Path:
    """Where a build goes unless it is told where."""
    return state_dir(project) / "images" / image


def build(project: Path, image: str, output: Path | None = None) -> Artifact:
    """Build the image from its lock and the pool, or return what is there if it is the same.

    output: the folder for rootfs.tar.zst and manifest.json. The lock must be there and the pool full
    (goldsmith.lock.lock_image). Raises GoldsmithError; then the folder holds what it held.
    """
    folder = project / "images" / image
    definition, lock = read_image(folder), read_lock(folder)
    output = output or default_output(project, image)
    state = state_dir(project)
    key = build_key(project, definition, lock)
    with holding(state / "build" / f"{image}.lock", f"the build of images/{image}"):
        if present := _present(output, key):
            console.print(f"  [green]✓[/] image {image} is built already ({present.size / 1e6:.0f} MB)")
            return present
        plan = plan_image(project, image)  # first: a misspelt role fails before anything is made
        verify(project, lock)  # a file that was damaged or swapped in the pool is named here, not found in an image
        for left in (state / "build" / image).glob(".*"):  # of a run that was killed
            remove_tree(left, state)
        base = make_base(definition, lock, state)
        making = Path(tempfile.mkdtemp(prefix=".tree-", dir=base.parent))
        try:
            return _build(project, plan, base, making, output, key)
        finally:
            # an interrupted converge may leave a command running in the tree; systemd-nspawn ends it on SIGTERM
            processes.stop(processes.find(f"--directory={making / 'tree'}"), patience=10)
            remove_tree(making, state)


def _build(project: Path, plan: Plan, base: Path, making: Path, output: Path, key: str) -> Artifact:
    image, tree = plan.node.name, making / "tree"
    with step("copy the base system"):
        process.run(
            ["cp", "--archive", "--reflink=auto", "--one-file-system", "--", base, tree],
            timeout=600,
            what="copy the base system",
        )
    with step(f"converge {image}: {', '.join(role.name for role in plan.roles)}") as now:
        converge_tree(tree, image, project, state_dir(project) / "pool", now.say)
    with step("remove machine identity"), Tree(tree) as opened:
        identity.strip(opened, keep=plan.desired.files)
    with step("read the tree back") as now:
        probe = read_back(plan, tree)
        now.result = f"{len(plan.lock.packages)} packages and {len(plan.desired.files)} files as promised"
    # reading back starts programs in the tree, and programs leave traces
    with Tree(tree) as opened:
        identity.strip(opened, keep=plan.desired.files)
    with step("pack rootfs.tar.zst") as now, atomic.replacing(output / ROOTFS) as temporary:
        packed: Packed = pack(tree, temporary, epoch(plan.lock), now.say)
        now.result = f"{packed.tree_size / 1e6:.0f} MB in {packed.size / 1e6:.0f} MB"
        # from here to the new manifest the folder holds no artifact: an old manifest would lie about it
        (output / MANIFEST).unlink(missing_ok=True)
    text = json.dumps(manifest(plan, probe, packed, key), indent=1, sort_keys=True, ensure_ascii=False)
    atomic.write(output / MANIFEST, text + "\n")
    return read_artifact(output, verify=False)


def _present(output: Path, key: str) -> Artifact | None:
    """The artifact in `output` if it was built from the same sources."""
    try:
        artifact = read_artifact(output, verify=False)
    except GoldsmithError:
        return None
    return artifact if artifact.key == key else None


def build_key(project: Path, image: Image, lock: Lock) -> str:
    """Changes when the image could come out differently: lock, image.yml, its roles' files, the engine's."""
    parts = [
        str(RULES),
        lock.digest,
        image.model_dump_json(),
        *(sources_digest(project / "roles" / role) for role in image.roles),
        sources_digest(project / "deploy.py"),
        *(sources_digest(ENGINE / part) for part in ENGINE_PARTS),
    ]
    return sha256("\n".join(parts).encode()).hexdigest()


def sources_digest(path: Path) -> str:
    """Of all files at or below `path`, by relative name and content; compiled and hidden ones don't count."""
    digest = sha256()
    for file in sorted(_files(path)):
        name = file.relative_to(path).as_posix()
        digest.update(f"{name}\0{sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        yield from (Path(folder) / name for name in names if not name.startswith("."))


def prune_bases(project: Path, image: str, used: Iterable[Path]) -> None:
    """Remove base systems of the image's earlier locks. used: folders that labs lie on; they stay."""
    folder = project / "images" / image
    state = state_dir(project)
    present = base_path(read_image(folder), read_lock(folder), state)
    keep = {present, *used}
    for path in (state / "build" / image).glob("base-*"):
        if path not in keep:
            remove_tree(path, state)
