"""Hygiene on real trees: the walk, and that what identity.strip leaves passes the rules that share nothing with it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldsmith.errors import GoldsmithError
from goldsmith.fleet.rootfs import require_plain, run_in_tree
from goldsmith.image import hygiene, identity
from goldsmith.image.hygiene.rule import Expected, View
from goldsmith.image.tree import Tree

# What the rules about identity and leftovers look for, each in a place where a system or a package puts it.
IDENTITY = (
    "etc/machine-id", "var/lib/dbus/machine-id", "etc/ssh/ssh_host_ecdsa_key", "etc/ssh/ssh_host_ecdsa_key.pub",
    "var/lib/systemd/random-seed", "boot/loader/random-seed", "var/lib/systemd/credential.secret",
    "var/lib/cloud/instances/i/x", "var/lib/cloud/data/result.json", "var/lib/dhcp/dhclient.leases",
    "var/lib/dhcpcd/duid", "var/lib/NetworkManager/secret_key", "var/lib/NetworkManager/timestamps",
    "etc/hostname", "etc/machine-info", "etc/mailname", "etc/nvme/hostid", "etc/nvme/hostnqn", "etc/multipath/wwids",
    "var/log/syslog", "var/log/apt/history.log", "var/log/journal/0/system.journal",
    "var/lib/dkms/x/1/k/a/log/make.log",
    "var/lib/dkms/mok.key", "root/.bash_history", "home/a/.python_history", "home/b/c/.lesshst",
    "var/lib/postgresql/.psql_history", "var/lib/apt/lists/x_InRelease", "var/cache/apt/archives/x.deb",
    "var/cache/apt/pkgcache.bin", "tmp/x/y", "var/tmp/.z", "run/x.pid", "etc/udev/rules.d/70-persistent-net.rules",
    "etc/netplan/50-cloud-init.yaml",
)  # fmt: skip
ORDINARY = (
    "etc/ssh/sshd_config",
    "etc/nvme/discovery.conf",
    "usr/share/x/.bash_history",
    "var/lib/dkms/x/1/source/x.c",
)


def found(root: Path, *files: str) -> set[str]:
    return {one.fact for one in hygiene.inspect(root, Expected("lab", files=files)) if one.check != "hygiene.owner"}


@given(st.sets(st.sampled_from(IDENTITY)), st.sets(st.sampled_from(ORDINARY)))
@settings(max_examples=40, deadline=None)
def test_what_strip_leaves_passes(identities: set[str], ordinary: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in identities | ordinary | {"etc/machine-id"}:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("0123456789abcdef\n")
        before = found(root)
        assert {path.removeprefix("/") for path in before} == identities | {"etc/machine-id"}
        with Tree(root) as tree:
            identity.strip(tree)
        assert found(root) == set()
        assert {name for name in ordinary if (root / name).is_file()} == ordinary


def test_a_walk_follows_no_link_and_tells_folders_first(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/x").touch()
    root = tmp_path / "root"
    (root / "b/c").mkdir(parents=True)
    (root / "b/c/d").touch()
    (root / "a").symlink_to(tmp_path / "outside")
    (root / os.fsdecode(b"\xff")).touch()
    with Tree(root) as tree:
        entries = list(tree.walk())
    assert [one.path for one in entries] == ["/a", "/b", "/b/c", "/b/c/d", "/\udcff"]
    assert entries[0].link == str(tmp_path / "outside")


def test_a_tree_without_a_bottom_is_an_error(tmp_path: Path) -> None:
    here = tmp_path / "root"
    here.mkdir()
    handle = os.open(here, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    with Tree(here) as tree, pytest.raises(GoldsmithError, match="deep"):
        list(tree.walk())
    shutil.rmtree(here)


@pytest.mark.parametrize("name", ["etc", "usr", "run", "etc/machine-id"])
def test_nothing_is_run_in_a_tree_that_nspawn_would_leave(tmp_path: Path, name: str) -> None:
    """systemd-nspawn 252 reads /etc/machine-id through a link, on this machine."""
    root = tmp_path / "root"
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    require_plain(root)
    (root / name).symlink_to(tmp_path)
    with pytest.raises(GoldsmithError, match=f"/{name} is a link to {tmp_path}"):
        run_in_tree(root, ["/bin/true"], timeout=1, what="x")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file capabilities")
def test_capabilities_are_seen(tmp_path: Path) -> None:
    (tmp_path / "ping").touch()
    (tmp_path / "ping").chmod(0o755)
    # VFS_CAP_REVISION_2, cap_net_raw, effective
    value = bytes.fromhex("0100000200200000000000000000000000000000")
    try:
        os.setxattr(tmp_path / "ping", "security.capability", value)
    except OSError as error:
        pytest.skip(f"no capabilities on this file system: {error}")
    with Tree(tmp_path) as tree:
        assert [one.capabilities for one in tree.walk()] == [value]


def test_a_range_of_paths_is_a_folder_and_not_its_neighbour(tmp_path: Path) -> None:
    for name in ("a/b", "a/c/d", "a-x/e", "a0", "ab/f"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with Tree(tmp_path) as tree:
        view = View(tree)
        assert [one.path for one in view.below("/a")] == ["/a/b", "/a/c", "/a/c/d"]
        assert [one.path for one in view.below("/none", "/ab")] == ["/ab/f"]
