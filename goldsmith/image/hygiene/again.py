"""Hygiene once more, of an artifact: its tree is unpacked, looked at as a build looks at it, and removed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.holding import holding
from goldsmith.image import hygiene
from goldsmith.image.artifact import read_artifact
from goldsmith.image.pack import unpack
from goldsmith.model.finding import Finding
from goldsmith.model.image import read_image
from goldsmith.plan import plan_image
from goldsmith.progress import step
from goldsmith.project import state_dir
from goldsmith.removal import remove_tree


def inspect_artifact(project: Path, folder: Path) -> list[Finding]:
    """What is wrong with the tree of the artifact in `folder`, which was built of this project's lock.

    The pool must have the lock's packages. Raises GoldsmithError if it can't be told.
    """
    artifact = read_artifact(folder)
    if "rootfs" not in artifact.formats:
        raise GoldsmithError(
            "this artifact has no rootfs to look into", where=str(folder), hint="build it with --format rootfs"
        )
    image = read_image(project / "images" / artifact.image)
    plan = plan_image(project, image.name)
    if artifact.manifest["lock"]["digest"] != plan.lock.digest:
        raise GoldsmithError(
            "was built of another lock, so what it may hold isn't known", where=str(folder),
            hint=f"build it again: goldsmith build images/{image.name}",
        )  # fmt: skip
    state = state_dir(project)
    above = state / "build" / image.name
    # a build removes what killed ones left here
    with holding(state / "build" / f"{image.name}.lock", f"the build of images/{image.name}"):
        above.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=".hygiene-", dir=above))
        try:
            with step(f"unpack {artifact.rootfs}"):
                unpack(artifact.rootfs, making / "tree")
            with step("check hygiene"):
                return hygiene.findings(plan, image, making / "tree", project, state)
        finally:
            remove_tree(making, state)
