"""The built image and the nodes on it, for real: what is in the artifact, and what a node's death leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from goldsmith.image.artifact import Artifact, read_artifact
from goldsmith.image.base import base_path
from goldsmith.image.build import default_output
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


def test_an_unknown_format_does_nothing(lab: Lab, tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = lab.goldsmith("build", "images/lab", "--format", "qcow2", "--output", str(output), expect=4)
    assert "isn't built yet" in done.stderr
    assert not output.exists()


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
