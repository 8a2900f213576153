"""Formats: the names that --format takes, and the same bytes from the same tree, whoever packs it, where and when."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.image import formats, sums
from goldsmith.image.pipe import pipe
from tests.needs import needs
from tests.unit import make_artifact

pytestmark = needs("zstd")
needs_squashfs = needs("mksquashfs")


def test_formats_are_names_in_any_order() -> None:
    assert formats.parse("oci, rootfs,rootfs") == ("rootfs", "oci")
    assert formats.tools(("rootfs", "squashfs")) == {"bwrap": "bubblewrap"}
    assert formats.packages(("rootfs", "oci")) == []
    assert "e2fsprogs" in formats.packages(("rootfs", "disk"))


@pytest.mark.parametrize("asked", ["disk", "qcow2", "qcow2,disk"])
def test_a_disk_comes_raw_and_as_qcow2(asked: str) -> None:
    assert formats.parse(asked) == ("disk", "qcow2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("squshfs", "did you mean squashfs"),
        ("vhd", "formats are rootfs, squashfs, oci, disk, qcow2"),
        ("rootfs,ocl", "mean oci"),
    ],
)
def test_an_unknown_format_is_answered_with_the_nearest(text: str, said: str) -> None:
    with pytest.raises(GoldsmithError, match=said) as told:
        formats.parse(text)
    assert told.value.exit_code == 4


def test_no_format() -> None:
    with pytest.raises(GoldsmithError, match="no format is named"):
        formats.parse(" ,")


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_the_same_tree_is_the_same_bytes_in_every_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: None
) -> None:
    first = make_artifact.artifact(make_artifact.tree(tmp_path / "x"), tmp_path / "out")
    (tmp_path / "else/where").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "else")
    os.umask(0o002)
    for name, value in (
        ("LC_ALL", "de_DE.UTF-8"),
        ("TZ", "Asia/Tokyo"),
        ("SOURCE_DATE_EPOCH", "1"),
        ("TAR_OPTIONS", "--owner=7"),
    ):
        monkeypatch.setenv(name, value)
    # another day, and names that come from the folder in another order
    other = make_artifact.tree(tmp_path / "else/y", stamp=1_900_000_000)
    (other / "etc/Z").rename(other / "Z")
    (other / "Z").rename(other / "etc/Z")
    for path in (other / "etc", other):
        os.utime(path, (1_900_000_000, 1_900_000_000))
    second = make_artifact.artifact(other, tmp_path / "else/where")
    assert (first / sums.SUMS).read_text() == (second / sums.SUMS).read_text()
    listed = sums.parse((first / sums.SUMS).read_bytes(), "")
    assert sum(path.startswith("oci/") for path in listed) == (5 if "oci" in make_artifact.FORMATS else 0)
    modes = {path: (first / path).stat().st_mode & 0o777 for path in (*listed, sums.SUMS)}
    assert set(modes.values()) == {0o644}
    assert (first / "oci/blobs").stat().st_mode & 0o777 == 0o755


@needs_squashfs
def test_a_squashfs_has_the_files_times_and_owners_of_the_tree(tmp_path: Path) -> None:
    made = make_artifact.artifact(make_artifact.tree(tmp_path / "x"), tmp_path / "out", ("squashfs",))
    assert not (made / "rootfs.tar.zst").exists()
    listing = subprocess.run(
        ["unsquashfs", "-lln", made / "rootfs.squashfs"],
        capture_output=True, text=True, check=True, timeout=60, env={**os.environ, "TZ": "UTC"},
    ).stdout  # fmt: skip
    lines = {
        line.split()[5].removeprefix("squashfs-root"): line.split() for line in listing.splitlines() if "root" in line
    }
    assert lines[""][0] == "drwxr-xr-x"
    assert lines[""][3:5] == ["2026-11-30", "00:00"]  # the root's, which has no name in a tar
    assert lines["/etc/a"][3:5] == ["2026-11-30", "00:00"]  # younger than the lock: the lock's
    assert lines["/etc/old"][3] == "2020-09-13"  # its own: Python compares compiled files with it
    assert lines["/etc/link"][-1] == "/etc/a"


def test_an_oci_layout_is_whole(tmp_path: Path) -> None:
    made = make_artifact.artifact(make_artifact.tree(tmp_path / "x"), tmp_path / "out", ("rootfs", "oci"))
    folder = made / "oci"
    for blob in (folder / "blobs/sha256").iterdir():
        assert sha256(blob.read_bytes()).hexdigest() == blob.name
    index = json.loads((folder / "index.json").read_text())
    manifest = json.loads((folder / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_text())
    config = json.loads((folder / "blobs/sha256" / manifest["config"]["digest"][7:]).read_text())
    layer = folder / "blobs/sha256" / manifest["layers"][0]["digest"][7:]
    assert layer.samefile(made / "rootfs.tar.zst")  # one file: the format costs no disk
    plain = subprocess.run(["zstd", "-dcq", layer], capture_output=True, check=True, timeout=60).stdout
    assert config["rootfs"]["diff_ids"] == [f"sha256:{sha256(plain).hexdigest()}"]
    said = json.loads((made / "manifest.json").read_text())["formats"]["oci"]
    assert index["manifests"][0]["digest"] == f"sha256:{said['sha256']}"


def test_a_pipe_says_which_end_failed_and_keeps_its_deadline(tmp_path: Path) -> None:
    with pytest.raises(GoldsmithError, match=r"`sh` failed with exit code 3:\n  no way"):
        pipe(["yes"], ["sh", "-c", "echo no way >&2; exit 3"], timeout=20, what="x", env={})
    with pytest.raises(GoldsmithError, match="`false` failed"):
        pipe(["false"], ["cat"], timeout=20, what="x", env={})
    with pytest.raises(GoldsmithError, match=r"within 0.2 s"):
        pipe(["yes"], ["sleep", "30"], timeout=0.2, what="x", env={})
    with pytest.raises(GoldsmithError, match="no-such-tool isn't installed"):
        pipe(["yes"], ["no-such-tool"], timeout=1, what="x", env={})
