"""The disk: its partitions and command line as data, from the lock alone. Made for real by tests/lab/test_image.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError, NotBuiltYet
from goldsmith.image import disk
from goldsmith.image.pack import Packed
from goldsmith.image.tools import Tools
from tests.needs import needs
from tests.unit import make

LOCK = make.lock()


def test_identifiers_come_from_the_lock_and_differ() -> None:
    names = ("disk", "esp", "root-a", "root-b", "data")
    assert len({disk.identifier(LOCK.digest, one) for one in names}) == len(names)
    assert disk.identifier(LOCK.digest, "disk") == disk.identifier(LOCK.digest, "disk")
    # two images' disks in one machine: neither boots the other's root
    assert disk.identifier(LOCK.digest, "root-a") != disk.identifier("0" * 64, "root-a")


def test_both_slots_are_as_large_and_only_the_first_is_filled(tmp_path: Path) -> None:
    made = disk.definitions(LOCK, 2048, tmp_path)
    first, second = made["20-root-a.conf"], made["30-root-b.conf"]
    assert "CopyBlocks" in first and "CopyBlocks" not in second
    for text in (first, second):
        assert "SizeMinBytes=2048M\nSizeMaxBytes=2048M" in text and "Type=root\n" in text
    assert sorted(made) == list(made), "systemd-repart lays them out in the order of their names"


def test_a_slot_has_room_for_more_than_its_tree() -> None:
    for size in (1, 10**9, 1_695_000_000, 50 * 10**9):
        mib = disk.slot_mib(size)
        assert mib * disk.MIB > size * 1.2 + 400 * disk.MIB and mib % 256 == 0


def test_the_roles_words_come_last_and_win() -> None:
    words = disk.command_line(LOCK, ["console=hvc0", "iommu=pt"]).split()
    assert words[0] == f"root=PARTUUID={disk.identifier(LOCK.digest, 'root-a')}"
    assert words[-2:] == ["console=hvc0", "iommu=pt"]
    assert any(word.startswith("systemd.mount-extra=") and word.endswith(":nofail") for word in words)


def test_an_image_without_a_kernel_has_no_disk(tmp_path: Path) -> None:
    assert LOCK.kernel is None
    with pytest.raises(GoldsmithError, match="has no kernel") as told:
        disk.write(tmp_path / "x", Packed(1, "", 1, ""), LOCK, (), tmp_path / "disk.raw", Tools(None))
    assert "add `kernel`" in told.value.hint
    arm = LOCK.model_copy(update={"kernel": "6.12.117", "architecture": "arm64"})
    with pytest.raises(NotBuiltYet, match="disk for arm64"):
        disk.write(tmp_path / "x", Packed(1, "", 1, ""), arm, (), tmp_path / "disk.raw", Tools(None))
    assert list(tmp_path.iterdir()) == []


def test_the_tools_tree_sees_what_it_is_given_and_no_more(tmp_path: Path) -> None:
    given = tmp_path / "given"
    words = Tools(Path("/trees/tools"), {}, "").command(["true", given], 7, reads=[given], writes=[tmp_path])
    assert words[-2:] == ["true", str(given)] and words[-3] == "--"
    assert "SOURCE_DATE_EPOCH" in words and "--clearenv" in words and "--unshare-all" in words
    # killed by SIGKILL ourselves, nothing runs on
    assert "--die-with-parent" in words
    bound = {words[at + 1] for at, word in enumerate(words) if word in ("--bind", "--ro-bind")}
    assert bound == {"/trees/tools/usr", "/trees/tools/etc", str(given), str(tmp_path)}


@needs("bwrap")
def test_a_program_in_the_tree_writes_only_where_it_may(tmp_path: Path) -> None:
    """This machine's own /usr as the tools tree."""
    (tmp_path / "open").mkdir()
    (tmp_path / "shut").mkdir()
    tools = Tools(Path("/"), {}, "")
    script = 'echo "$SOURCE_DATE_EPOCH" > "$1/open/a"; echo x > "$1/shut/b"; ls /root'
    argv = tools.command(["sh", "-c", script, "sh", tmp_path], 7, reads=[tmp_path / "shut"], writes=[tmp_path / "open"])
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (tmp_path / "open/a").read_text() == "7\n"
    assert not (tmp_path / "shut/b").exists() and done.returncode != 0
