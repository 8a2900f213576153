"""The base system of an image: mmdebstrap from the pool, nothing but the lock's packages. No role has touched
it.

It is what a build goes on from, and what a bare node of the lab lies on.
"""

from __future__ import annotations

import json
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from goldsmith import process
from goldsmith.errors import GoldsmithError
from goldsmith.image import identity
from goldsmith.image.tree import Tree
from goldsmith.model.image import Image
from goldsmith.model.lock import Lock
from goldsmith.progress import step
from goldsmith.removal import remove_tree

# Counted up when a base of the same lock comes out differently.
RULES = 1
# What mmdebstrap and this machine leave in a tree, and no package owns.
_LEFTOVERS = ("/etc/apt/sources.list", "/etc/apt/apt.conf.d/99mmdebstrap", "/etc/hostname", "/etc/resolv.conf")


def base_key(image: Image, lock: Lock) -> str:
    """Changes when the base would."""
    data = {"rules": RULES, "lock": lock.digest, "base": image.base.model_dump(mode="json")}
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def base_path(image: Image, lock: Lock, state: Path) -> Path:
    """Where the base lies or will: a folder a key, so that one that a node lies on is never changed under
    it.
    """
    return state / "build" / image.name / f"base-{base_key(image, lock)[:16]}"


def make_base(image: Image, lock: Lock, state: Path, folder: Path | None = None) -> Path:
    """The base system of the image, as a folder that nobody writes into; made unless it is there.

    state: the project's state directory, whose pool has the lock's debs. folder: where to look for it and make it,
    below `state`; otherwise where builds share it. Raises GoldsmithError; then nothing half made is left.
    """
    path = base_path(image, lock, state)
    if folder:
        path = folder / path.name
    if path.is_dir():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".base-", dir=path.parent))
    try:
        with step(f"build the base system of {image.name} ({len(image.base.packages)} packages and theirs)") as now:
            tree = making / "tree"
            with tempfile.NamedTemporaryFile("w", suffix=".asc", dir=making) as key:
                key.write(lock.pool.key)
                key.flush()
                process.run(
                    command(image, lock, state / "pool", Path(key.name), tree),
                    timeout=1800,
                    what=f"build the base system of images/{image.name}",
                    env={"SOURCE_DATE_EPOCH": str(lock.epoch), "TMPDIR": str(making)},
                    hint="is the pool whole? `goldsmith pool verify` says which package isn't",
                    on_line=now.say,
                )
            tree.chmod(0o755)
            with Tree(tree) as opened:
                for leftover in _LEFTOVERS:
                    opened.remove(leftover)
                identity.strip(opened)
        os.rename(tree, path)
    finally:
        remove_tree(making, state)
    return path


def command(image: Image, lock: Lock, pool: Path, key: Path, tree: Path) -> list[str]:
    """mmdebstrap's arguments: the pool is the one source, by its folder, so that no server is needed."""
    base = image.base
    options = f"signed-by={_plain(key)} arch={base.architecture}"
    # copy: and not file:, whose paths apt would look for inside the tree
    source = f"deb [{options}] copy://{quote(str(pool))} {lock.pool.suite} main"
    return [
        *process.WITH_US,
        "mmdebstrap",
        "--mode=root",
        "--variant=apt",
        f"--architectures={base.architecture}",
        f"--include={','.join(base.packages)}",
        # apt's own user can't read a checkout below /root
        '--aptopt=APT::Sandbox::User "root"',
        "--aptopt=Acquire::Languages none",
        lock.pool.suite,
        str(tree),
        source,
    ]


def _plain(path: Path) -> str:
    text = str(path)
    if any(character in text for character in " \t[]"):
        raise GoldsmithError("apt can't read a key below a path with blanks or brackets", where=text)
    return text
