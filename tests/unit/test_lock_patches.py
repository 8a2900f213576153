"""Patches of DKMS modules in image.yml and its lock, and drivers that a lock refuses."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError, Refused
from goldsmith.lint.facts import packaged_facts
from goldsmith.lock.known_bad import require_buildable
from goldsmith.lock.locking import image_digest
from goldsmith.lock.patches import LARGEST, locked_patches, read_patches
from goldsmith.model.image import Image, read_placed
from goldsmith.model.lock import Lock, LockedPatch
from goldsmith.yamlfile import Places
from tests.unit import make

PATCH = b"--- a/x.c\n+++ b/x.c\n@@ -1 +1 @@\n-a\n+b\n"
LOCKED = LockedPatch(module="nvidia-current-open", file="patches/x.patch", sha256=sha256(PATCH).hexdigest())
KERNEL = "6.12.117+deb13-cloud-amd64"
IMAGE = """\
schema: 1
name: tiny
base:
  distribution: debian
  release: trixie
  suites: [trixie]
  packages: [python3]
kernel:
  release: {kernel}
  packages:
    - linux-image-{kernel}
stack:
  driver:
    version: {driver}
    packages:
      - {package}
roles: []
"""
PATCHES = """\
dkms:
  patches:
    - module: nvidia-current-open
      file: patches/x.patch
"""


def image(folder: Path, more: str = "", *, kernel: str = KERNEL, driver: str = "550.163.01",
          package: str = "nvidia-open-kernel-dkms") -> tuple[Image, Places]:  # fmt: skip
    (folder / "tiny/patches").mkdir(parents=True, exist_ok=True)
    (folder / "tiny/image.yml").write_text(IMAGE.format(kernel=kernel, driver=driver, package=package) + more)
    if not (folder / "tiny/patches/x.patch").is_symlink():
        (folder / "tiny/patches/x.patch").write_bytes(PATCH)
    return read_placed(folder / "tiny")


def lock(*patches: LockedPatch) -> Lock:
    return make.lock().model_copy(update={"patches": list(patches)})


# --- patches


def test_a_patch_lies_beside_the_layer_that_names_it(tmp_path: Path) -> None:
    image(tmp_path, PATCHES)
    (tmp_path / "child").mkdir()
    (tmp_path / "child/image.yml").write_text("schema: 1\nextends: ../tiny\nname: child\n")
    (one,) = read_patches(*read_placed(tmp_path / "child"))
    assert (one.locked, one.text, one.name) == (LOCKED, PATCH, "x.patch")
    assert one.field.endswith("tiny/image.yml:21, dkms.patches.0.file")


def test_a_patch_makes_another_image_and_none_leaves_it_as_it_was(tmp_path: Path) -> None:
    bare, patched = image(tmp_path)[0], image(tmp_path, PATCHES)[0]
    assert image_digest(bare, []) != image_digest(patched, [])
    assert "patches" not in make.lock().to_text()


@pytest.mark.parametrize(
    ("lay", "said"),
    [
        (lambda path: path.unlink(), "can't be read: No such file"),
        (lambda path: path.write_bytes(b"a\nb\n"), "isn't a patch"),
        (lambda path: path.write_bytes(b""), "isn't a patch"),
        (lambda path: path.write_bytes(PATCH + b"x" * LARGEST), "larger than 1 MiB"),
        (lambda path: (path.unlink(), path.mkdir()), "can't be read: Is a directory"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "isn't a plain file"),
        (lambda path: path.rename(path.with_name("y")) and path.symlink_to("y"), "is a link"),
        (lambda path: path.parent.rename(path.parents[1] / "p") and path.parent.symlink_to("p"), "reached through one"),
    ],
    ids=["missing", "text", "empty", "large", "folder", "fifo", "link", "folder's link"],
)
def test_what_is_no_patch(tmp_path: Path, lay: object, said: str) -> None:
    read = image(tmp_path, PATCHES)
    lay(tmp_path / "tiny/patches/x.patch")  # type: ignore[operator]
    with pytest.raises(GoldsmithError, match=said) as caught:
        read_patches(*read)
    assert "tiny/image.yml:" in caught.value.where and "dkms.patches" in caught.value.where


@pytest.mark.parametrize(
    "file", ["../x.patch", "/etc/passwd", "a/../../x", ".hidden", "a//b", "a b", 'x";id;"', "-x/."]
)
def test_a_path_that_leads_elsewhere_isnt_one(tmp_path: Path, file: str) -> None:
    with pytest.raises(GoldsmithError, match="dkms"):
        image(tmp_path, PATCHES.replace("patches/x.patch", f"'{file}'"))


def test_two_patches_of_one_name(tmp_path: Path) -> None:
    more = "    - module: nvidia-current-open\n      file: x.patch\n"
    read = image(tmp_path, PATCHES + more)
    (tmp_path / "tiny/x.patch").write_bytes(PATCH)
    with pytest.raises(GoldsmithError, match=r"two patches named x\.patch"):
        read_patches(*read)
    # of two modules they go into two folders
    assert len(read_patches(*image(tmp_path, PATCHES + more.replace("nvidia-current-open", "hello")))) == 2
    with pytest.raises(GoldsmithError, match="twice"):
        image(tmp_path, PATCHES + more.replace("x.patch", "patches/x.patch"))


def test_a_build_takes_the_locks_patches_alone(tmp_path: Path) -> None:
    image(tmp_path, PATCHES)
    folder = tmp_path / "tiny"
    assert [one.locked for one in locked_patches(folder, lock(LOCKED))] == [LOCKED]
    with pytest.raises(GoldsmithError, match="isn't in the lock"):
        locked_patches(folder, lock())
    (folder / "patches/x.patch").write_bytes(PATCH.replace(b"+b", b"+c"))
    with pytest.raises(GoldsmithError, match="was changed since the image was locked") as caught:
        locked_patches(folder, lock(LOCKED))
    assert caught.value.exit_code == 4 and "goldsmith lock" in caught.value.hint
    image(tmp_path)
    with pytest.raises(GoldsmithError, match="the lock has other patches"):
        locked_patches(folder, lock(LOCKED))
    assert locked_patches(folder, lock()) == []
    assert locked_patches(tmp_path / "no such image", lock()) == []


def test_their_order_is_the_locks(tmp_path: Path) -> None:
    image(tmp_path, PATCHES + "    - module: nvidia-current-open\n      file: y.patch\n")
    (tmp_path / "tiny/y.patch").write_bytes(PATCH)
    other = LOCKED.model_copy(update={"file": "y.patch"})
    assert len(locked_patches(tmp_path / "tiny", lock(LOCKED, other))) == 2
    with pytest.raises(GoldsmithError, match="in another order"):
        locked_patches(tmp_path / "tiny", lock(other, LOCKED))


# --- what a lock refuses


def refused(tmp_path: Path, more: str = "", **change: str) -> str:
    read = image(tmp_path, more, **change)
    try:
        require_buildable(read[0], None, read[1], tmp_path / "tiny")
    except Refused as error:
        return str(error)
    return ""


def test_a_driver_that_doesnt_build_is_refused_with_its_source(tmp_path: Path) -> None:
    said = refused(tmp_path)
    assert said.startswith(
        f"{tmp_path}/tiny/image.yml:14, stack.driver.version: driver 550.163.01 with kernel {KERNEL}"
    )
    assert "nv-pci.c:237" in said and "(K1, by goldsmith's tests/lab/test_dkms.py" in said
    assert "known to build for" in said and "535.274.02" in said and "--allow-known-bad" in said


@pytest.mark.parametrize(
    ("more", "change"),
    [
        ("", {"driver": "535.274.02", "package": "nvidia-tesla-535-kernel-dkms"}),
        ("", {"package": "nvidia-kernel-dkms"}),  # the proprietary one, which wasn't tried
        ("", {"package": "libcuda1"}),
        ("", {"kernel": "6.12.50+deb13-amd64"}),
        (PATCHES, {}),
        # nobody has verified this one
        ("", {"kernel": "7.0.0-1011-gcp", "driver": "590.48.01"}),
    ],
)
def test_what_is_next_to_it_isnt(tmp_path: Path, more: str, change: dict[str, str]) -> None:
    assert refused(tmp_path, more, **change) == ""


def test_a_patch_for_another_module_helps_nothing(tmp_path: Path) -> None:
    assert "550.163.01" in refused(tmp_path, PATCHES.replace("nvidia-current-open", "hello"))


def test_the_locks_versions_count_where_image_yml_pins_none(tmp_path: Path) -> None:
    image(tmp_path)
    path = tmp_path / "tiny/image.yml"
    path.write_text(path.read_text().replace("    version: 550.163.01\n", ""))
    read, places = read_placed(tmp_path / "tiny")
    require_buildable(read, None, places, tmp_path / "tiny")
    packages: dict[str, tuple[str, str, str | None]] = {
        "nvidia-open-kernel-dkms": ("550.163.01-2", "nvidia-open-gpu-kernel-modules", "driver"),
        f"linux-image-{KERNEL}": ("6.12.117-1", "linux-signed-amd64", "kernel"),
    }
    locked = make.lock(packages).model_copy(update={"kernel": KERNEL, "image_digest": image_digest(read, [])})
    with pytest.raises(Refused, match=r"550\.163\.01"):
        require_buildable(read, locked, places, tmp_path / "tiny")


def test_each_known_bad_pair_says_who_saw_it() -> None:
    for pair in packaged_facts().kernel_pairs.values():
        assert pair.source and pair.why
