"""Two builds of one lock, compared: what differs is named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from goldsmith import host
from goldsmith.errors import GoldsmithError
from goldsmith.image.artifact import MANIFEST, read_artifact
from goldsmith.image.reproducible import differences, entries
from tests.needs import needs
from tests.unit import make_artifact

pytestmark = needs("zstd")
OLDER = 1_500_000_000  # than the lock, so that packing keeps it


@pytest.fixture(autouse=True)
def _no_diffoscope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "find_tool", lambda name: None)


def compare(
    tmp_path: Path, change: Callable[[Path], object], formats: tuple[str, ...] = ("rootfs", "oci")
) -> list[str]:
    """What two artifacts differ in, of which the second's tree was changed before."""
    folders = []
    for name in ("first", "second"):
        tree = make_artifact.tree(tmp_path / f"{name}.tree")
        if name == "second":
            change(tree)
        folders.append(make_artifact.artifact(tree, tmp_path / name, formats))
    one, other = (read_artifact(folder) for folder in folders)
    return list(differences(one, other, tmp_path / "report.txt"))


def test_the_same_tree_on_another_day_is_the_same(tmp_path: Path) -> None:
    assert compare(tmp_path, lambda tree: os.utime(tree / "etc/b", (1_900_000_000,) * 2)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tree: (tree / "etc/b").write_text("B" * 1000), "./etc/b: content"),
        (lambda tree: (tree / "etc/b").write_text("bb"), "./etc/b: size 1000 and 2, content"),
        (lambda tree: (tree / "etc/b").chmod(0o600), "./etc/b: mode 0644 and 0600"),
        (lambda tree: os.utime(tree / "etc/old", (OLDER, OLDER)), f"./etc/old: mtime 1600000000 and {OLDER}"),
        (lambda tree: (tree / "etc/new").write_text("x"), "./etc/new: only in the second build"),
        (lambda tree: (tree / "etc/old").unlink(), "./etc/old: only in the first build"),
    ],
    ids=["content", "size", "mode", "mtime", "new", "gone"],
)
def test_a_file_that_differs_is_named_with_what_about_it(
    tmp_path: Path, change: Callable[[Path], object], said: str
) -> None:
    assert said in compare(tmp_path, change)


def test_a_link_that_leads_elsewhere(tmp_path: Path) -> None:
    def change(tree: Path) -> None:
        (tree / "etc/link").unlink()
        (tree / "etc/link").symlink_to("/etc/b")

    assert "./etc/link: link /etc/a and /etc/b" in compare(tmp_path, change)


def test_without_a_rootfs_the_files_cant_be_told(tmp_path: Path) -> None:
    (said,) = compare(tmp_path, lambda tree: (tree / "etc/b").write_text("B"), ("oci",))
    assert "--format rootfs" in said


def test_a_format_that_differs_though_the_tree_doesnt(tmp_path: Path) -> None:
    folders = [make_artifact.artifact(make_artifact.tree(tmp_path / f"{name}.t"), tmp_path / name, ("rootfs",))
               for name in ("first", "second")]  # fmt: skip
    manifest = json.loads((folders[1] / MANIFEST).read_text())
    manifest["formats"]["rootfs"]["sha256"] = "0" * 64
    manifest["tools"]["zstd"] = "another zstd"
    manifest["units"] = {"x.service": "enabled"}
    (folders[1] / MANIFEST).write_text(json.dumps(manifest))
    one, other = (read_artifact(folder, verify=False) for folder in folders)
    said = list(differences(one, other, tmp_path / "report.txt"))
    assert len(said) == 2
    assert said[0].startswith("rootfs.tar.zst: other bytes of the same tree, written by zstd ")
    assert said[1] == "manifest.json: units differs"


def test_what_isnt_a_tar_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with pytest.raises(GoldsmithError, match="can't be read"):
        entries(tmp_path / "x")
