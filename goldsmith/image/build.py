"""Building an image: base system, the roles, identity removed, read back, packed once, written in every format asked
for. The same roles as on nodes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from goldsmith import process
from goldsmith.converge.run import converge_tree
from goldsmith.errors import GoldsmithError
from goldsmith.holding import holding
from goldsmith.image import hygiene, identity, seen
from goldsmith.image.artifact import Artifact, read_artifact
from goldsmith.image.base import base_path, make_base
from goldsmith.image.formats import FORMATS, packages
from goldsmith.image.layer import copy, packages_layer, running_in
from goldsmith.image.manifest import manifest, read_back
from goldsmith.image.pack import Packed, pack
from goldsmith.image.papers import versions, write_formats, write_papers
from goldsmith.image.publish import publish, staging
from goldsmith.image.signature import signed_by
from goldsmith.image.tools import Tools, tools_tree
from goldsmith.image.tree import Tree
from goldsmith.lock.locking import verify
from goldsmith.lock.patches import locked_patches
from goldsmith.model.image import Image, read_image
from goldsmith.model.lock import Lock, read_lock
from goldsmith.model.probe import Probe
from goldsmith.plan import Plan, plan_image
from goldsmith.progress import console, step
from goldsmith.project import state_dir
from goldsmith.removal import remove_tree

# Counted up when an image of the same sources comes out differently.
RULES = 3
# The packed tree while formats are made of it.
PACKED = ".tree.tar.zst"
ENGINE = Path(__file__).parent.parent
# The parts of the engine that an image is made by.
CONVERGE_PARTS = (
    "converge", "model", "probe", "fleet/rootfs.py", "lock/sources.py", "template.py", "plan.py",
    "compare.py", "compare_families.py", "compare_python.py", "difference.py", "role.py",
    "image/dkms.py", "image/dkms_cache.py", "image/dkms_log.py", "lock/patches.py",
)  # fmt: skip
ENGINE_PARTS = ("image", *CONVERGE_PARTS)


def default_output(project: Path, image: str) -> Path:
    """Where a build goes unless it is told where."""
    return state_dir(project) / "images" / image


def build(
    project: Path,
    image: str,
    output: Path | None = None,
    formats: Sequence[str] = ("rootfs",),
    key: Path | None = None,
    *,
    keep_signature: bool = False,
) -> Artifact:
    """Build the image from its lock and the pool, or return what is there if it is the same.

    output: the folder for the artifact. formats: names of FORMATS; those that the same image has there already stay,
    those of another are removed. key: signs it. keep_signature: unless somebody did. The lock must be there and the
    pool full (goldsmith.lock.lock_image). Raises GoldsmithError; then the folder holds what it held.
    """
    folder = project / "images" / image
    definition, lock = read_image(folder), read_lock(folder)
    locked_patches(folder, lock)  # an edited one is refused, though the artifact of the unedited may be there
    output = output or default_output(project, image)
    state = state_dir(project)
    sources = build_key(project, definition, lock)
    record = state / "build" / f"{image}.seen.json"
    with holding(state / "build" / f"{image}.lock", f"the build of images/{image}"):
        present = _present(output, sources, record)
        if present and (not _lacking(present, formats) or "rootfs" in present.formats):
            artifact = _complete(project, present, lock, formats, key, keep_signature=keep_signature)
        else:
            artifact = _anew(project, definition, lock, output, formats, key, sources)
        seen.remember(record, output)
        return artifact


def _lacking(present: Artifact, formats: Sequence[str]) -> list[str]:
    return [name for name in FORMATS if name in formats and name not in present.formats]


def _complete(
    project: Path,
    present: Artifact,
    lock: Lock,
    formats: Sequence[str],
    key: Path | None,
    *,
    keep_signature: bool = False,
) -> Artifact:
    """What is built already, with the formats that it lacks, made of its rootfs, and a signature by `key`."""
    lacking = _lacking(present, formats)
    signed = present.signed and (key is None or keep_signature or signed_by(present.folder, key))
    if not lacking and (signed or not key):
        console.print(f"  [green]✓[/] image {present.image} is built already ({', '.join(present.formats)})")
        return present
    if lacking and not key and present.signed:
        console.print(
            f"  [yellow]![/] {present.folder} was signed; with another format in it, it has to be signed again"
        )
    tools = _tools(project, lacking)
    with staging(present.folder) as folder:
        for one in present.formats.values():  # links: what is there costs nothing
            process.run(
                ["cp", "--archive", "--link", "--", present.folder / one.file, folder],
                timeout=600,
                what="keep the formats that are there",
            )
        written_by = dict(present.manifest["tools"])
        made = dict(present.formats)
        if lacking:
            rootfs = present.formats["rootfs"]
            layer = Packed(rootfs.size, rootfs.sha256, present.tree_size, present.tree_sha256)
            words = present.manifest["command_line"]
            made |= write_formats(lacking, folder / rootfs.file, layer, lock, folder, parameters=words, tools=tools)
            written_by |= versions(lacking, tools)
        write_papers(folder, present.manifest, made, written_by, key)
        publish(folder, present.folder)
    return read_artifact(present.folder, verify=False)


def _anew(
    project: Path, image: Image, lock: Lock, output: Path, formats: Sequence[str], key: Path | None, sources: str
) -> Artifact:
    """Build from the beginning, or from the layers of earlier builds."""
    folder = state_dir(project) / "build" / image.name
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".*"):  # of a run that was killed
        remove_tree(left, state_dir(project))
    return make(project, image, lock, folder, output, formats, key, sources)


def make(
    project: Path,
    image: Image,
    lock: Lock,
    layers: Path,
    output: Path,
    formats: Sequence[str],
    key: Path | None,
    sources: str,
) -> Artifact:
    """Build into `output`. layers: the folder, below the state directory, of base systems and layers of packages: those
    that are there are taken, others are made."""
    state = state_dir(project)
    plan = plan_image(project, image.name)  # first: a misspelt role fails before anything is made
    tools = _tools(project, formats)
    verify(project, lock)  # a file that was damaged or swapped in the pool is named here, not found in an image
    base = make_base(image, lock, state, layers)
    packages = packages_layer(plan, base, engine_digest(project, CONVERGE_PARTS), project, state)
    making = Path(tempfile.mkdtemp(prefix=".tree-", dir=layers))
    try:
        with running_in(making / "tree"):
            probe = _converged(project, plan, packages, making / "tree")
            with step("check hygiene") as now:
                hygiene.check(plan, image, making / "tree", project, state)
                now.result = f"{len(hygiene.CHECKS)} rules"
        with staging(output) as folder:
            with step("pack the tree") as now:
                layer = pack(making / "tree", folder / PACKED, lock.epoch, now.say)
                (folder / PACKED).chmod(0o644)
                now.result = f"{layer.tree_size / 1e6:.0f} MB in {layer.size / 1e6:.0f} MB"
            read = manifest(plan, probe, layer, sources)
            made = write_formats(
                formats, folder / PACKED, layer, lock, folder, parameters=read["command_line"], tools=tools
            )
            (folder / PACKED).unlink()
            write_papers(folder, read, made, versions(formats, tools), key)
            publish(folder, output)
    finally:
        remove_tree(making, state)
    return read_artifact(output, verify=False)


def _tools(project: Path, formats: Iterable[str]) -> Tools:
    """The programs that make these formats; none is made where they need none."""
    return tools_tree(project, state_dir(project)) if packages(formats) else Tools(None)


def _converged(project: Path, plan: Plan, packages: Path, tree: Path) -> Probe:
    """Make the tree: layer of packages, roles, identity removed; what it says of itself."""
    image = plan.node.name
    copy(packages, tree, "the layer of packages")
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
    return probe


def _present(output: Path, sources: str, record: Path) -> Artifact | None:
    """The artifact in `output`, if it was built from the same sources and every file of it is as it was."""
    try:
        artifact = read_artifact(output, verify=False)
        if artifact.key != sources:
            return None
        if not seen.unchanged(record, output):
            with step(f"look whether {output} is still what was built"):
                read_artifact(output, verify=True)
    except GoldsmithError:
        return None
    return artifact


def build_key(project: Path, image: Image, lock: Lock) -> str:
    """Changes when the image could come out differently: lock, image.yml, its roles' files, the engine's."""
    parts = [
        str(RULES),
        lock.digest,
        image.model_dump_json(),
        *(sources_digest(project / "roles" / role) for role in image.roles),
        engine_digest(project, ENGINE_PARTS),
    ]
    return sha256("\n".join(parts).encode()).hexdigest()


def engine_digest(project: Path, parts: Iterable[str]) -> str:
    """Of the sources that every image is made by, whatever its roles: deploy.py and these parts of the engine."""
    digests = [sources_digest(project / "deploy.py"), *(sources_digest(ENGINE / part) for part in parts)]
    return sha256("\n".join(digests).encode()).hexdigest()


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
