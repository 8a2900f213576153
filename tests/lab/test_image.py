"""The built image and the nodes on it, for real: what is in the artifact, and what a node's death leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from goldsmith import host
from goldsmith.image.artifact import Artifact, read_artifact
from goldsmith.image.base import base_path
from goldsmith.image.build import default_output
from goldsmith.inventory.site import image_of, lock_of
from goldsmith.processes import in_overlay
from goldsmith.project import state_dir
from tests.unit import make_artifact

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
    for name, said in (("disk", "isn't built yet"), ("squashf", "did you mean squashfs")):
        done = lab.goldsmith("build", "images/lab", "--format", name, "--output", str(output), expect=4)
        assert said in done.stderr
    assert not output.exists()


@pytest.fixture(scope="module")
def in_all_formats(artifact: Artifact, lab: Lab) -> Path:
    """The same artifact with more formats, which are made of its rootfs: no tree is made again."""
    before = artifact.rootfs.stat().st_ino
    lab.goldsmith("build", "images/lab", "--format", "rootfs,squashfs,oci", "--sign", "lab")
    assert artifact.rootfs.stat().st_ino == before
    return artifact.folder


def test_one_changed_byte_and_verify_names_it(in_all_formats: Path, lab: Lab) -> None:
    signers = ["--allowed-signers", str(state_dir(PROJECT) / "signing/allowed_signers")]
    lab.goldsmith("verify", str(in_all_formats), *signers)
    assert "whose signature counts" in lab.goldsmith("verify", str(in_all_formats), expect=3).stdout
    squashfs = in_all_formats / "rootfs.squashfs"
    with squashfs.open("r+b") as file:
        file.seek(1 << 20)
        byte = file.read(1)
        file.seek(1 << 20)
        file.write(bytes([byte[0] ^ 1]))
        file.flush()
        done = lab.goldsmith("verify", str(in_all_formats), *signers, expect=2)
        file.seek(1 << 20)
        file.write(byte)
    assert "rootfs.squashfs: changed" in done.stdout
    lab.goldsmith("verify", str(in_all_formats), *signers)


def test_squashfs_and_oci_layout_hold_the_tree(in_all_formats: Path, tmp_path: Path) -> None:
    """What is in them is asked with the tools that read them."""
    # not /etc's link to it: unsquashfs 4.5.1 takes any link with .. in it for a loop
    argv = ["unsquashfs", "-cat", str(in_all_formats / "rootfs.squashfs"), "usr/lib/os-release"]
    assert "trixie" in subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout
    # goldsmith writes the layout itself; whether it is one, only another's tool can say
    host.require_tools({"skopeo": "skopeo"})
    argv = ["skopeo", "inspect", f"oci:{in_all_formats / 'oci'}:lab"]
    said = json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=60).stdout)
    assert said["Labels"]["goldsmith.lock"] == lock_of(PROJECT, "lab").digest
    # and it can be taken from there, which reads the layer and its digests
    small = make_artifact.artifact(make_artifact.tree(tmp_path / "x"), tmp_path / "out", ("oci",))
    argv = ["skopeo", "--insecure-policy", "copy", f"oci:{small / 'oci'}:lab", f"dir:{tmp_path / 'copy'}"]
    subprocess.run(argv, capture_output=True, check=True, timeout=60)


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
