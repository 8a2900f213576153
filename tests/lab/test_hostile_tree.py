"""A tree with links planted in it that point out of it: no build of it writes, removes or reads outside.

pyinfra's stock @chroot connector wrote through such a link onto the build host (docs/measured.md). Each trap is laid in
a finished tree, which is then made an image again: converged, stripped, looked at. That may succeed inside, or fail
with an error that a person can read; a folder of this machine stays as it was, to the last timestamp.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from goldsmith.converge.run import converge_tree
from goldsmith.errors import GoldsmithError
from goldsmith.image import hygiene, identity
from goldsmith.image.artifact import read_artifact
from goldsmith.image.base import base_path
from goldsmith.image.build import default_output
from goldsmith.image.manifest import read_back
from goldsmith.image.pack import unpack
from goldsmith.image.tree import Tree
from goldsmith.inventory.site import image_of, lock_of
from goldsmith.model.image import read_image
from goldsmith.plan import plan_image
from goldsmith.project import state_dir

from .conftest import PROJECT, Lab

# Trap → the links in it: path in the tree → path in the victim folder. What stood there is in the victim, too.
TRAPS: dict[str, dict[str, str]] = {
    "etc": {"/etc": "etc"},
    "a managed file": {"/etc/nccl.conf": "file", "/etc/apt/sources.list": "file", "/var/lib/goldsmith/families": "x"},
    "a managed file's folder": {"/etc/systemd/system.conf.d": "folder", "/etc/security/limits.d": "other"},
    "apt's folders": {"/etc/apt/apt.conf.d": "folder"},
    "apt's": {"/etc/apt": "folder"},
    "identity": {
        "/etc/hostname": "hostname", "/var/lib/dbus/machine-id": "machine-id",
        "/var/lib/systemd/random-seed": "file", "/var/lib/dpkg/status-old": "file", "/root/.bash_history": "file",
        "/etc/ssh/ssh_host_rsa_key": "ssh/ssh_host_rsa_key",
    },
    "the machine's id": {"/etc/machine-id": "machine-id"},
    "ssh": {"/etc/ssh": "ssh"},
    "logs": {"/var/log": "folder"},
    "logs, deeper": {"/var/log/apt": "folder", "/var/log/dpkg.log": "file"},
    "caches": {"/root/.cache": "folder", "/var/cache/goldsmith": "other", "/var/lib/apt/lists": "etc"},
    "root's home": {"/root": "folder", "/home": "other"},
    "sources": {"/usr/src": "folder"},
    "dkms": {"/var/lib/dkms": "folder"},
    "temporary": {"/var/tmp": "folder"},
    "run": {"/run": "folder"},
    "devices": {"/dev": "folder", "/proc": "other", "/sys": "etc"},
    "services": {"/usr/sbin/policy-rc.d": "file", "/etc/systemd/system": "folder"},
}  # fmt: skip
# Those that leave a system which works, and become an image.
HARMLESS = {
    "a managed file", "a managed file's folder", "apt's folders", "apt's", "identity", "logs, deeper", "sources",
    "services",
}  # fmt: skip
# What packages are unpacked through, and their scripts write through.
UNPACKED = {"/usr/lib/modules": "folder", "/usr/share/doc": "other", "/etc/modprobe.d": "etc", "/etc/nccl.conf": "file"}


@pytest.fixture(scope="module")
def finished(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The lab's image, unpacked."""
    folder = tmp_path_factory.mktemp("hostile")
    unpack(read_artifact(default_output(PROJECT, "lab"), verify=False).rootfs, folder / "tree")
    yield folder / "tree"
    shutil.rmtree(folder)


@contextmanager
def writable(lower: Path) -> Iterator[Path]:
    """The tree, to be changed: a layer over it, which is thrown away."""
    with tempfile.TemporaryDirectory(prefix="goldsmith-hostile-") as name:
        folder = Path(name)
        for part in ("upper", "work", "tree"):
            (folder / part).mkdir()
        options = f"lowerdir={lower},upperdir={folder / 'upper'},workdir={folder / 'work'}"
        argv = ["mount", "-t", "overlay", "overlay", "-o", options, str(folder / "tree")]
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
        try:
            yield folder / "tree"
        finally:
            subprocess.run(["umount", str(folder / "tree")], check=True, capture_output=True, timeout=60)


@contextmanager
def victim_folder() -> Iterator[Path]:
    """A folder of this machine that looks like what the traps are in; not below /tmp, which nspawn covers."""
    with tempfile.TemporaryDirectory(prefix="goldsmith-victim-", dir="/var/lib") as name:
        folder = Path(name)
        for path in (
            "file", "hostname", "machine-id", "ssh/ssh_host_rsa_key", "ssh/sshd_config", "folder/x.log", "folder/x/y",
            "folder/nccl.conf", "folder/90-goldsmith.conf", "folder/90goldsmith", "folder/.bash_history",
            "folder/apt/history.log", "folder/null", "folder/goldsmith-old.conf", "etc/passwd", "etc/hostname",
            "etc/machine-id", "etc/ssh/ssh_host_rsa_key", "etc/nccl.conf", "etc/os-release",
            "other/90-goldsmith.conf", "other/x/y",
        ):  # fmt: skip
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(f"this machine's {path}\n")
        yield folder


def state_of(folder: Path) -> dict[str, tuple[object, ...]]:
    """All that can be seen of a folder's files."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (
            status.st_mode,
            status.st_uid,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
            content,
        )
    return found


def lay(tree: Path, victim: Path, links: dict[str, str], *, relative: bool) -> None:
    """Plant the links; what stands in their place goes into the tree's own copy of the victim."""
    for path, name in links.items():
        place = tree / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir() and not place.is_symlink():
            # so that a program inside finds what it expects at the end of the link
            inner = tree / str(victim / name)[1:]
            shutil.rmtree(inner, ignore_errors=True)
            inner.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mv", "-T", "--", str(place), str(inner)], check=True, timeout=300)
        else:
            place.unlink(missing_ok=True)
        target = victim / name
        place.symlink_to(os.path.relpath(target, place.parent) if relative else target)


def make_image(tree: Path) -> list[str]:
    """What a build does with a tree, up to packing; the checks that hygiene finds wanting."""
    plan, image = plan_image(PROJECT, "lab"), read_image(PROJECT / "images/lab")
    converge_tree(tree, "lab", PROJECT, state_dir(PROJECT) / "pool")
    with Tree(tree) as opened:
        identity.strip(opened, keep=plan.desired.files)
    read_back(plan, tree)
    with Tree(tree) as opened:
        identity.strip(opened, keep=plan.desired.files)
    return [one.check for one in hygiene.findings(plan, image, tree, PROJECT, state_dir(PROJECT))]


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_nothing_outside_is_touched(finished: Path, trap: str, relative: bool) -> None:
    with victim_folder() as victim, writable(finished) as tree:
        lay(tree, victim, TRAPS[trap], relative=relative)
        before = state_of(victim)
        try:
            wrong = make_image(tree)
        except GoldsmithError as error:
            print(error)
            assert trap not in HARMLESS, error
            assert "defect" not in str(error) and "Traceback" not in str(error)
            assert any(path.rpartition("/")[2] in str(error) for path in TRAPS[trap]), error
        else:
            print(wrong)
        assert state_of(victim) == before


def test_packages_are_unpacked_inside(lab: Lab) -> None:
    """A base system whose folders are links, and all packages of the image into it."""
    base = base_path(image_of(PROJECT, "lab"), lock_of(PROJECT, "lab"), state_dir(PROJECT))
    with victim_folder() as victim, writable(base) as tree:
        for name in UNPACKED.values():
            if (victim / name).is_dir():  # a kernel's script wants to find a folder at the end of the link
                (tree / str(victim / name)[1:]).mkdir(parents=True)
        lay(tree, victim, UNPACKED, relative=False)
        before = state_of(victim)
        converge_tree(tree, "lab", PROJECT, state_dir(PROJECT) / "pool")
        with Tree(tree) as opened:
            identity.strip(opened)
        inside = tree / str(victim)[1:]
        assert list((inside / "folder").glob("*/kernel"))
        assert (inside / "other/libnccl2").is_dir()
        assert state_of(victim) == before
