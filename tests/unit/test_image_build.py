"""Packing, artifacts, and the key that decides whether an image is built again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from goldsmith.compare import Difference
from goldsmith.errors import GoldsmithError
from goldsmith.image import seen
from goldsmith.image.artifact import MANIFEST, ROOTFS, read_artifact
from goldsmith.image.build import ENGINE, ENGINE_PARTS, _complete, _present, sources_digest
from goldsmith.image.manifest import sentence, strangers, unmet
from goldsmith.image.pack import file_digest, pack, unpack
from goldsmith.image.signature import lab_key, signed_by
from goldsmith.image.sums import SUMS
from goldsmith.model.finding import Finding, Severity
from tests.needs import needs
from tests.unit import make, make_artifact

pytestmark = needs("zstd")


def make_tree(folder: Path, stamp: int) -> Path:
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/b").write_text("b")
    (folder / "etc/a").write_text("a")
    (folder / "etc/link").symlink_to("/etc/a")
    for path in (folder / "etc/a", folder / "etc/b", folder / "etc", folder):
        os.utime(path, (stamp, stamp))
    os.utime(folder / "etc/link", (stamp, stamp), follow_symlinks=False)
    return folder


def test_the_same_tree_packs_to_the_same_bytes_whenever_it_was_made(tmp_path: Path) -> None:
    packed = [
        pack(make_tree(tmp_path / name, stamp), tmp_path / f"{name}.zst", 1_700_000_000, lambda _: None)
        for name, stamp in (("x", 1_800_000_000), ("y", 1_900_000_000))
    ]
    assert packed[0] == packed[1]
    assert packed[0].sha256 == file_digest(tmp_path / "x.zst")
    assert packed[0].size == (tmp_path / "x.zst").stat().st_size


def test_what_is_packed_unpacks(tmp_path: Path) -> None:
    pack(make_tree(tmp_path / "x", 1_800_000_000), tmp_path / "x.zst", 1_700_000_000, lambda _: None)
    unpack(tmp_path / "x.zst", tmp_path / "z")
    assert (tmp_path / "z/etc/b").read_text() == "b"
    assert os.readlink(tmp_path / "z/etc/link") == "/etc/a"
    assert (tmp_path / "z/etc/b").stat().st_mtime == 1_700_000_000


def test_a_tree_that_isnt_there_fails_with_tars_words(tmp_path: Path) -> None:
    with pytest.raises(GoldsmithError, match=r"`tar` failed"):
        pack(tmp_path / "none", tmp_path / "x.zst", 0, lambda _: None)


def test_an_artifact_is_what_its_manifest_says_or_an_error(tmp_path: Path) -> None:
    with pytest.raises(GoldsmithError, match="no built image"):
        read_artifact(tmp_path)
    out = make_artifact.artifact(make_tree(tmp_path / "x", 1_800_000_000), tmp_path / "out", ("rootfs",))
    artifact = read_artifact(out)
    assert (artifact.image, artifact.key, artifact.signed) == ("lab", "k", False)
    assert artifact.sha256 == file_digest(out / ROOTFS)
    content = (out / ROOTFS).read_bytes()
    (out / ROOTFS).write_bytes(content[:-1] + b"x")  # the same size: only the digest tells
    assert read_artifact(out, verify=False).image == "lab"
    with pytest.raises(GoldsmithError, match=r"rootfs.tar.zst: isn't what"):
        read_artifact(out)
    (out / ROOTFS).write_bytes(content[:-1])
    with pytest.raises(GoldsmithError, match=r"rootfs.tar.zst: isn't what"):
        read_artifact(out, verify=False)
    (out / MANIFEST).write_text("[]")
    with pytest.raises(GoldsmithError, match="not a manifest"):
        read_artifact(out)


def test_a_sources_digest_sees_names_and_content_not_compiled_files(tmp_path: Path) -> None:
    (tmp_path / "r/templates").mkdir(parents=True)
    (tmp_path / "r/desired.py").write_text("1")
    first = sources_digest(tmp_path / "r")
    (tmp_path / "r/__pycache__").mkdir()
    (tmp_path / "r/__pycache__/x.pyc").write_text("x")
    assert sources_digest(tmp_path / "r") == first
    (tmp_path / "r/templates/x.j2").write_text("x")
    assert sources_digest(tmp_path / "r") != first


def test_a_package_that_the_lock_lacks_is_named() -> None:
    installed = {
        "a": {"version": "1", "status": "ii "},
        "b": {"version": "2", "status": "ii "},
        "c": {"version": "3", "status": "rc "},
    }
    assert strangers({"a": None}, installed) == ["packages b: not in the lock, found 2"]


def test_a_difference_is_one_line() -> None:
    assert sentence(Difference("packages", "linux-image", "6.12", "not installed")) == (
        "packages linux-image: expected 6.12, found not installed"
    )


def test_the_parts_of_the_engine_that_make_an_image_are_there() -> None:
    # one that was renamed would no longer count, silently
    for part in ENGINE_PARTS:
        assert (ENGINE / part).exists(), part


@pytest.mark.parametrize("damage", ["rootfs.tar.zst", "sbom.cdx.json", "SHA256SUMS", "oci/index.json"])
def test_an_artifact_with_a_damaged_file_isnt_built_already(tmp_path: Path, damage: str) -> None:
    tree = make_tree(tmp_path / "x", 1_800_000_000)
    out = make_artifact.artifact(tree, tmp_path / "out", ("rootfs", "oci"))
    record = tmp_path / "seen.json"
    for _ in range(2):  # read whole, then known
        assert _present(out, "k", record)
        seen.remember(record, out)
    assert not _present(out, "another", record)
    content = (out / damage).read_bytes()
    (out / damage).write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    assert not _present(out, "k", record)


def test_a_format_is_added_without_another_build(tmp_path: Path) -> None:
    out = make_artifact.artifact(make_tree(tmp_path / "x", 1_800_000_000), tmp_path / "out", ("rootfs",))
    whole = make_artifact.artifact(make_tree(tmp_path / "y", 1_800_000_000), tmp_path / "whole", ("rootfs", "oci"))
    present = read_artifact(out)
    inode = present.rootfs.stat().st_ino
    added = _complete(tmp_path, present, make.lock(), ("rootfs", "oci"), None)
    assert list(added.formats) == ["rootfs", "oci"] and present.rootfs.stat().st_ino == inode
    assert (out / SUMS).read_text() == (whole / SUMS).read_text()
    assert not added.signed


@needs("ssh-keygen")
def test_who_gives_a_key_gets_its_signature(tmp_path: Path) -> None:
    out = make_artifact.artifact(make_tree(tmp_path / "x", 1_800_000_000), tmp_path / "out", ("rootfs",))
    first, second = lab_key(tmp_path / "first"), lab_key(tmp_path / "second")
    for formats, key, keep, by in (
        (("rootfs",), first, True, first),  # unsigned until now
        (("rootfs",), None, False, first),
        (("rootfs",), second, True, first),  # the lab's key doesn't replace a site's
        (("rootfs",), second, False, second),
        (("rootfs", "oci"), second, False, second),  # signed by it already, and then not any more: a file came
    ):
        _complete(tmp_path, read_artifact(out), make.lock(), formats, key, keep_signature=keep)
        assert signed_by(out, by), (formats, key, keep)
    made = read_artifact(out)
    inode = made.folder.stat().st_mtime_ns
    assert _complete(tmp_path, made, make.lock(), ("oci",), second) is made and made.folder.stat().st_mtime_ns == inode


def test_what_a_role_could_not_tell_of_the_tree_is_not_in_an_image() -> None:
    found = [
        Finding(node="lab", check="x.y", severity=severity, fact="libx.so.1", expected="1.2", actual=actual)
        for severity, actual in ((Severity.FAIL, "1.1"), (Severity.UNKNOWN, "no answer"), (Severity.WARN, "1.2"))
    ]
    assert unmet(found) == [
        "libx.so.1: expected 1.2, found 1.1", "libx.so.1: expected 1.2, could not be told: no answer",
    ]  # fmt: skip
