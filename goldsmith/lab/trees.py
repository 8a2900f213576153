"""The root file systems that nodes lie on: an artifact unpacked once, a folder a digest, shared by every lab.

A folder here is complete (it was renamed into place) and never written to: each node's changes are its own.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.holding import holding
from goldsmith.image.artifact import Artifact, read_artifact
from goldsmith.image.pack import unpack
from goldsmith.lab.state import LabState
from goldsmith.progress import step
from goldsmith.removal import remove_tree


def golden_path(artifact: Artifact, root: Path) -> Path:
    """Where the artifact's tree lies or will. root: the state directory."""
    return root / "trees" / f"{artifact.image}-{artifact.sha256[:16]}"


def golden_tree(artifact: Artifact, root: Path) -> Path:
    """The artifact's root file system as a folder, unpacked unless it is there; its digests are verified
    first.
    """
    path = golden_path(artifact, root)
    if path.is_dir():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".unpack-", dir=path.parent))
    try:
        with step(f"unpack image {artifact.image}"):
            read_artifact(artifact.folder, verify=True)
            unpack(artifact.rootfs, making / "tree")
        with suppress(FileExistsError, OSError):  # another lab's run was faster: the same folder
            os.rename(making / "tree", path)
    finally:
        remove_tree(making, root)
    return path


def in_use(root: Path) -> set[Path]:
    """The folders that labs of this state directory lie on."""
    used: set[Path] = set()
    for path in root.glob("labs/*/state.json"):
        with suppress(OSError, ValueError):
            lab = LabState.model_validate_json(path.read_bytes())
            used |= {Path(one) for one in lab.trees.values()} | {Path(one.tree) for one in lab.nodes.values()}
    return used


def prune(root: Path) -> None:
    """Remove the unpacked trees that no lab lies on, and what an interrupted run left. Only while `settled`."""
    used = in_use(root)
    folder = root / "trees"
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path not in used:
            remove_tree(path, root)
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def settled(root: Path, seconds: float = 300) -> Iterator[None]:
    """While the block runs no other lab unpacks, takes or removes a tree; waits for one that does."""
    deadline = time.monotonic() + seconds
    while True:
        hold = holding(root / "trees.lock", "the labs' root file systems")
        try:
            hold.__enter__()
            break
        except GoldsmithError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    try:
        yield
    finally:
        hold.__exit__(None, None, None)
