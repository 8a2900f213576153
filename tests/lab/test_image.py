"""The built image and the nodes on it, for real: what is in the artifact, and what a node's death leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from goldsmith import host
from goldsmith.image.artifact import Artifact, read_artifact
from goldsmith.image.base import base_path
from goldsmith.image.build import default_output
from goldsmith.image.oci import blob_path
from goldsmith.image.tools import tools_tree
from goldsmith.inventory.site import image_of, lock_of
from goldsmith.processes import in_overlay
from goldsmith.project import state_dir

from .conftest import PROJECT, Lab


@pytest.fixture(scope="module")
def artifact(lab: Lab) -> Artifact:
    """What `lab up` built; its digests are right."""
    return read_artifact(default_output(PROJECT, "lab"), verify=True)


def test_the_manifest_is_the_lock_read_back(artifact: Artifact) -> None:
    lock = lock_of(PROJECT, "lab")
    packages = artifact.manifest["packages"]
    assert {name: one["version"] for name, one in packages.items()} == {
        name: one.version for name, one in lock.packages.items()
    }
    assert artifact.manifest["lock"]["digest"] == lock.digest
    # the library's own answer, 2.22.3; Debian's upstream version is 2.22.3-1
    assert packages["libnccl2"]["version"].startswith(artifact.manifest["roles"]["nccl"]["libraries"][0]["version"])
    assert packages["libnccl2"]["held"]


def test_nothing_of_the_building_machine_is_in_the_manifest(artifact: Artifact) -> None:
    text = json.dumps(artifact.manifest)
    assert os.uname().release not in text
    assert str(PROJECT) not in text


def test_the_image_has_no_identity(artifact: Artifact) -> None:
    argv = ["tar", "--list", "--verbose", f"--file={artifact.rootfs}", "--use-compress-program=zstd -d"]
    listing = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout
    files = {line.split()[5]: int(line.split()[2]) for line in listing.splitlines() if line.startswith("-")}
    assert files["./etc/machine-id"] == 0
    for path in files:
        assert not path.startswith(("./etc/ssh/ssh_host_", "./var/lib/apt/lists/", "./tmp/", "./run/")), path
        assert not path.startswith("./var/log/") or path == "./var/log/README", path
        assert not path.endswith((".deb", "_history", "/random-seed", "/etc/hostname", "/etc/resolv.conf")), path


def test_a_second_build_is_the_first(artifact: Artifact, lab: Lab) -> None:
    before = artifact.rootfs.stat().st_mtime_ns
    done = lab.goldsmith("build", "images/lab")
    assert artifact.sha256 in done.stdout
    assert artifact.rootfs.stat().st_mtime_ns == before


def test_a_format_that_isnt_there_does_nothing(lab: Lab, tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = lab.goldsmith("build", "images/lab", "--format", "squashf", "--output", str(output), expect=4)
    assert "did you mean squashfs" in done.stderr
    assert not output.exists()


SIGNERS = ["--allowed-signers", str(state_dir(PROJECT) / "signing/allowed_signers")]
ALL_FORMATS = ["--format", "rootfs,squashfs,disk,oci", "--sign", "lab"]


@pytest.fixture(scope="module")
def in_all_formats(artifact: Artifact, lab: Lab) -> Artifact:
    """The same artifact with more formats, which are made of its rootfs: no tree is made again."""
    before = artifact.rootfs.stat().st_ino
    lab.goldsmith("build", "images/lab", *ALL_FORMATS)
    made = read_artifact(artifact.folder, verify=False)
    assert list(made.formats) == ["rootfs", "squashfs", "oci", "disk", "qcow2"]
    assert artifact.rootfs.stat().st_ino == before
    return made


def test_one_changed_byte_and_verify_names_it(in_all_formats: Artifact, lab: Lab) -> None:
    folder = str(in_all_formats.folder)
    lab.goldsmith("verify", folder, *SIGNERS)
    assert "whose signature counts" in lab.goldsmith("verify", folder, expect=3).stdout
    layer = blob_path(in_all_formats.formats["rootfs"].sha256)  # the very file that rootfs.tar.zst is
    names = ["rootfs.squashfs", "disk.raw", "disk.qcow2", f"oci/{layer}", "sbom.cdx.json", "manifest.json"]
    for name in names:
        flip(in_all_formats.folder / name)
    try:
        done = lab.goldsmith("verify", folder, *SIGNERS, expect=2)
    finally:
        for name in names:
            flip(in_all_formats.folder / name)
    for name in (*names, "rootfs.tar.zst"):
        assert f"{name}: changed" in done.stdout, name
    lab.goldsmith("verify", folder, *SIGNERS)


def flip(path: Path) -> None:
    """Change one bit in the middle of a file; done again, it is as it was."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def test_the_same_bits_twice(in_all_formats: Artifact, lab: Lab) -> None:
    """The second is built from nothing that was kept, elsewhere; the first lies there from before."""
    done = lab.goldsmith("build", "images/lab", *ALL_FORMATS, "--check-reproducible", timeout=1800)
    assert "built twice, the same: rootfs, squashfs, oci, disk, qcow2" in done.stdout
    assert not list((state_dir(PROJECT) / "build/lab").glob(".*"))


def test_the_days_of_accounts_are_the_locks(in_all_formats: Artifact) -> None:
    """What programs write of today into a file's content, no clamped time of a file shows."""
    argv = ["tar", "--extract", "--to-stdout", f"--file={in_all_formats.rootfs}", "--use-compress-program=zstd -d",
            "./etc/shadow"]  # fmt: skip
    lines = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    assert {line.split(":")[2] for line in lines} == {str(lock_of(PROJECT, "lab").epoch // 86400)}


def test_a_squashfs_holds_the_tree(in_all_formats: Artifact) -> None:
    tools = tools_tree(PROJECT, state_dir(PROJECT))
    squashfs = in_all_formats.folder / "rootfs.squashfs"
    argv = tools.command(["unsquashfs", "-cat", squashfs, "usr/lib/os-release"], 0, reads=[squashfs])
    assert "trixie" in subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


# What a framework and a library say of themselves, not what a package says of them.
VERSIONS = """
import ctypes, torch
nccl = ctypes.c_int()
ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(nccl))
print(torch.__version__, nccl.value)
"""


@pytest.fixture
def runroot() -> Iterator[Path]:
    """podman takes none with more than 50 characters, and pytest's own folders have more."""
    with tempfile.TemporaryDirectory(prefix="podman-", dir="/tmp") as name:
        yield Path(name)


def test_an_oci_layout_is_read_by_others_and_runs(in_all_formats: Artifact, tmp_path: Path, runroot: Path) -> None:
    """goldsmith writes the layout itself; whether it is one, only another's tool can say."""
    host.require_tools({"skopeo": "skopeo", "podman": "podman"})
    folder = tmp_path / "layout"  # podman makes a name of the path, and takes none with a dot in front
    shutil.copytree(in_all_formats.folder / "oci", folder, copy_function=os.link)
    said = json.loads(output("skopeo", "inspect", f"oci:{folder}:lab"))
    lock = lock_of(PROJECT, "lab")
    assert said["Labels"]["goldsmith.lock"] == lock.digest
    podman = ["podman", "--root", str(tmp_path / "root"), "--runroot", str(runroot), "--cgroup-manager", "cgroupfs"]
    name = output(*podman, "pull", "--quiet", f"oci:{folder}:lab").strip()
    tree = output(*podman, "image", "mount", name).strip()
    try:
        # not `podman run`: it wants cgroups v2 or a systemd, which not every machine of CI has
        inside = ["bwrap", "--ro-bind", tree, "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
        torch, nccl = output(*inside, "--unshare-all", "python3", "-c", VERSIONS).split()
    finally:
        output(*podman, "image", "unmount", "--force", name)
        output(*podman, "image", "rm", "--force", name)
    assert lock.packages["python3-torch"].version.startswith(torch.partition("+")[0] + "+")
    major, minor, patch = lock.packages["libnccl2"].version.partition("-")[0].split(".")
    assert int(nccl) == int(major) * 10000 + int(minor) * 100 + int(patch)


def output(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout


def test_nodes_are_apart(lab: Lab) -> None:
    nodes = [f"node{number:02}" for number in range(1, 5)]
    assert len({lab.on(node, "cat", "/etc/machine-id") for node in nodes}) == 4
    assert len({lab.on(node, "cat", "/etc/ssh/ssh_host_ed25519_key.pub") for node in nodes}) == 4
    for node in nodes:
        assert lab.on(node, "hostname").strip() == node
        assert lab.on(node, "systemctl", "is-system-running").strip() == "running"
        assert "default" not in lab.on(node, "ip", "route")  # no way out
    lab.on("node01", "sh", "-c", "'echo mine > /var/tmp/mine'")
    assert "mine" not in lab.on("node02", "ls", "-A", "/var/tmp")
    # the shared layers stay as they were
    for tree in (base_path(image_of(PROJECT, "lab"), lock_of(PROJECT, "lab"), state_dir(PROJECT)),):
        assert (tree / "etc/machine-id").read_bytes() == b""


def test_no_mount_of_a_node_is_seen_on_this_machine(lab: Lab) -> None:
    assert str(lab.state) not in Path("/proc/self/mountinfo").read_text()


def test_a_killed_node_is_noticed_and_comes_back(lab: Lab) -> None:
    """systemd-nspawn killed outright leaves the node's processes behind; they are found by their overlay."""
    machine_id = lab.on("node04", "cat", "/etc/machine-id")
    state = json.loads((lab.state / "state.json").read_text())
    os.kill(state["nodes"]["node04"]["running"]["pid"], signal.SIGKILL)
    assert "died" in lab.goldsmith("lab", "status", "--site", "SITE", expect=2).stdout
    lab.goldsmith("lab", "start", "node04", "--site", "SITE")
    assert lab.on("node04", "cat", "/etc/machine-id") == machine_id
    assert "died" not in lab.goldsmith("lab", "status", "--site", "SITE").stdout


def test_a_stopped_node_leaves_no_process_and_keeps_its_disk(lab: Lab) -> None:
    lab.on("node04", "touch", "/root/kept")
    lab.goldsmith("lab", "stop", "node04", "--site", "SITE")
    assert in_overlay(lab.state / "nodes/node04/upper") == []
    lab.goldsmith("lab", "start", "node04", "--site", "SITE")
    lab.on("node04", "rm", "/root/kept")
