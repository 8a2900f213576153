"""Trees are foreign ground: whatever links lie in them, nothing outside is read, written or removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.image import identity
from goldsmith.image.tree import Tree
from goldsmith.removal import check_inside, mounts_below, remove_tree


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the build host, which an evil tree points at."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "shadow").write_text("secret")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "etc").mkdir(parents=True)
    return folder


def test_a_file_is_written_whole_with_its_mode(root: Path) -> None:
    with Tree(root) as tree:
        tree.write("/etc/deep/er/file", "text", mode=0o640)
        assert tree.read("/etc/deep/er/file") == b"text"
    path = root / "etc/deep/er/file"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in path.parent.iterdir()] == ["file"]


def test_a_link_at_the_path_is_replaced_and_not_followed(root: Path, outside: Path) -> None:
    (root / "etc/hostname").symlink_to(outside / "shadow")
    with Tree(root) as tree:
        assert tree.read("/etc/hostname") is None
        tree.write("/etc/hostname", "node01\n")
    assert (outside / "shadow").read_text() == "secret"
    assert not (root / "etc/hostname").is_symlink()


@pytest.mark.parametrize("path", ["/evil/file", "/evil/deeper/file"])
def test_a_folder_that_is_a_link_is_not_entered(root: Path, outside: Path, path: str) -> None:
    (root / "evil").symlink_to(outside)
    with Tree(root) as tree:
        with pytest.raises(GoldsmithError, match="isn't followed"):
            tree.write(path, "x")
        with pytest.raises(GoldsmithError, match="isn't followed"):
            tree.remove(path)
        with pytest.raises(GoldsmithError, match="isn't followed"):
            tree.empty("/evil")
    assert [one.name for one in outside.iterdir()] == ["shadow"]


@pytest.mark.parametrize("path", ["etc/x", "/etc/../x", "/", "/./x"])
def test_only_absolute_plain_paths(root: Path, path: str) -> None:
    with Tree(root) as tree, pytest.raises(GoldsmithError, match="plain path"):
        tree.write(path, "x")


def test_a_fifo_in_the_place_of_a_file_doesnt_hang(root: Path) -> None:
    os.mkfifo(root / "etc/fifo")
    with Tree(root) as tree:
        assert tree.read("/etc/fifo") is None


def test_emptying_removes_links_not_their_targets(root: Path, outside: Path) -> None:
    (root / "var/log/apt").mkdir(parents=True)
    (root / "var/log/apt/term.log").write_text("x")
    (root / "var/log/evil").symlink_to(outside)
    with Tree(root) as tree:
        assert tree.empty("/var/log", keep_folders=True) == 2
        assert tree.names("/var/log") == ["apt"]
        assert tree.empty("/var/none") == 0
    assert (outside / "shadow").exists()


def test_identity_goes_and_what_roles_manage_stays(root: Path) -> None:
    for path in (
        "etc/machine-id", "etc/hostname", "etc/ssh/ssh_host_rsa_key", "etc/ssh/ssh_host_rsa_key.pub",
        "etc/ssh/sshd_config", "root/.bash_history", "home/a/.python_history", "var/lib/systemd/random-seed",
        "var/lib/apt/lists/x_Packages", "var/cache/apt/archives/a.deb", "var/log/dpkg.log", "tmp/x", "var/tmp/.x/y",
    ):  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("identity")
    with Tree(root) as tree:
        identity.strip(tree, keep={"/etc/hostname"})
    left = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert left == {"etc/machine-id", "etc/hostname", "etc/ssh/sshd_config"}
    # empty, not missing and not `uninitialized`: neither presets units over what the roles decided
    assert (root / "etc/machine-id").read_bytes() == b""


def test_only_folders_inside_the_state_are_removed(tmp_path: Path, outside: Path) -> None:
    state = tmp_path / "state"
    (state / "labs/x/nodes").mkdir(parents=True)
    (state / "labs/x/link").symlink_to(outside)
    (state / "link").symlink_to(outside)
    for path in (outside, state, state / "labs/../../outside", tmp_path):
        with pytest.raises(GoldsmithError, match="isn't inside"):
            check_inside(path, state)
    with pytest.raises(GoldsmithError, match="is a link"):
        remove_tree(state / "link", state)
    remove_tree(state / "labs/x", state)
    remove_tree(state / "labs/x", state)  # again: nothing to do
    assert not (state / "labs/x").exists()
    assert (outside / "shadow").exists()


def test_mounts_are_found_by_their_unescaped_path() -> None:
    text = (
        "1 0 8:1 / / rw - ext4 /dev/vda rw\n"
        "2 1 0:5 / /s/a\\040b/m rw - overlay overlay rw\n"
        "3 2 0:6 / /s/a\\040b/m/proc rw - proc proc rw\n"
        "4 1 0:7 / /s/ab rw - tmpfs tmpfs rw\n"
    )
    assert mounts_below(Path("/s/a b"), text) == [Path("/s/a b/m/proc"), Path("/s/a b/m")]
    assert mounts_below(Path("/s/c"), text) == []
