"""A whole artifact of a tree of a few files, made by the same steps as a real one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goldsmith.image.artifact import SCHEMA
from goldsmith.image.pack import pack
from goldsmith.image.papers import versions, write_formats, write_papers
from goldsmith.image.publish import publish, staging
from goldsmith.image.tools import Tools
from goldsmith.model.lock import Lock
from tests.unit import make

# the tools tree takes root and a network: here mksquashfs is this machine's, where it has one
HOST = Tools(None)
FORMATS = ("rootfs", "squashfs", "oci") if shutil.which("mksquashfs") else ("rootfs", "oci")


def tree(folder: Path, stamp: int = 1_800_000_000) -> Path:
    """A small tree whose files are of `stamp`, after the lock's date, but for one that is older."""
    (folder / "etc").mkdir(parents=True)
    for name in ("b", "a", "Z", "ä"):
        (folder / "etc" / name).write_text(name * 1000)
    (folder / "etc/link").symlink_to("/etc/a")
    os.link(folder / "etc/a", folder / "etc/hard")
    (folder / "etc/old").write_text("old")
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (stamp, stamp), follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    os.utime(folder / "etc/old", (1_600_000_000, 1_600_000_000))
    return folder


def manifest(lock: Lock, size: int, digest: str) -> dict[str, Any]:
    """The manifest of an image of this lock, with one Python environment."""
    packages = {
        name: {
            "version": one.version, "architecture": one.architecture, "sha256": one.sha256, "held": False,
            "source": one.source, "repository": one.repository,
        }
        for name, one in lock.packages.items()
    }  # fmt: skip
    return {
        "schema": SCHEMA, "image": lock.image, "key": "k", "created": lock.created,
        "base": {"distribution": lock.distribution, "release": lock.release, "architecture": lock.architecture},
        "lock": {"digest": lock.digest, "image_digest": lock.image_digest}, "desired": "d", "command_line": [],
        "tree": {"size": size, "sha256": digest}, "packages": packages,
        "environments": {"torch": {"torch": {"version": "2.6.0+cu124", "sha256": "1" * 64}}},
        "files": {}, "units": {}, "roles": {}, "os": {}, "kernel": {},
    }  # fmt: skip


def stage(source: Path, folder: Path, formats: Sequence[str] = FORMATS, key: Path | None = None) -> None:
    """Make an artifact of the tree `source` in the staging folder `folder`."""
    lock = make.lock()
    packed = folder / ".tree"
    layer = pack(source, packed, lock.epoch, lambda _: None)
    packed.chmod(0o644)
    made = write_formats(formats, packed, layer, lock, folder, tools=HOST)
    packed.unlink()
    write_papers(folder, manifest(lock, layer.tree_size, layer.tree_sha256), made, versions(formats, HOST), key)


def artifact(source: Path, output: Path, formats: Sequence[str] = FORMATS, key: Path | None = None) -> Path:
    """Make an artifact of the tree `source` in `output`."""
    with staging(output) as folder:
        stage(source, folder, formats, key)
        publish(folder, output)
    return output
