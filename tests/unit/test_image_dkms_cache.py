"""Built modules, kept: what comes back is what went in, or it isn't taken."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goldsmith.image.dkms_cache import KEPT_SECONDS, BuiltFile, Damaged, ModuleCache

KEY, OTHER = "a" * 64, "b" * 64
FILES = {
    "x86_64/module/hello.ko.xz": BuiltFile(b"\x7fELF", 0o644),
    "x86_64/module/Module.symvers": BuiltFile(b"", 0o600),
}
ABOUT = {"module": "hello", "version": "1.0", "kernel": "6.12.117"}


@pytest.fixture
def cache(tmp_path: Path) -> ModuleCache:
    one = ModuleCache(tmp_path / "dkms", tmp_path)
    one.store(KEY, ABOUT, FILES)
    return one


def why(cache: ModuleCache, key: str = KEY) -> str:
    kept = cache.load(key)
    assert isinstance(kept, Damaged), kept
    return kept.why


def test_what_comes_back_is_what_went_in(cache: ModuleCache) -> None:
    assert cache.load(KEY) == FILES
    assert cache.load(OTHER) is None
    told = json.loads((cache.root / KEY / "entry.json").read_text())
    assert told["module"] == "hello" and told["kernel"] == "6.12.117"
    assert [path.name for path in cache.root.iterdir()] == [KEY]


def test_an_entry_that_is_stored_again_is_replaced(cache: ModuleCache) -> None:
    cache.store(KEY, ABOUT, {"x86_64/module/hello.ko.xz": BuiltFile(b"another", 0o644)})
    assert cache.load(KEY) == {"x86_64/module/hello.ko.xz": BuiltFile(b"another", 0o644)}


def test_two_builds_that_store_the_same_at_once(cache: ModuleCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between one's look and its rename another has stored it; either's will do."""
    monkeypatch.setattr(cache, "drop", lambda _: None)
    cache.store(KEY, ABOUT, FILES)
    assert cache.load(KEY) == FILES and [path.name for path in cache.root.iterdir()] == [KEY]


def edit(entry: Path, change: Callable[[dict[str, Any]], object]) -> None:
    told = json.loads((entry / "entry.json").read_text())
    change(told)
    (entry / "entry.json").write_text(json.dumps(told))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda entry: (entry / "files/x86_64/module/hello.ko.xz").write_bytes(b"\x7fELG"), "was changed"),
        (lambda entry: (entry / "files/x86_64/module/hello.ko.xz").unlink(), "FileNotFoundError"),
        (lambda entry: (entry / "entry.json").unlink(), "FileNotFoundError"),
        (lambda entry: (entry / "entry.json").write_text('{"schema": 1'), "JSONDecodeError"),
        (lambda entry: (entry / "entry.json").write_text("[]"), "TypeError"),
        (lambda entry: edit(entry, lambda told: told.update(schema=2)), "another entry"),
        (lambda entry: edit(entry, lambda told: told.update(key=OTHER)), "another entry"),
        (lambda entry: edit(entry, lambda told: told.update(files={})), "no files"),
        (lambda entry: edit(entry, lambda told: told.update(files=["x"])), "AttributeError"),
        (lambda entry: edit(entry, lambda told: told["files"]["x86_64/module/hello.ko.xz"].pop("mode")), "KeyError"),
    ],
)
def test_a_damaged_entry_isnt_taken(cache: ModuleCache, damage: Callable[[Path], object], said: str) -> None:
    damage(cache.root / KEY)
    assert said in why(cache)
    cache.drop(KEY)
    assert cache.load(KEY) is None


@pytest.mark.parametrize("name", ["../../outside", "/outside", "x/../../outside", "", ".", "a\0b"])
def test_a_name_that_leads_out_isnt_taken(cache: ModuleCache, tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_bytes(b"")
    empty = {"sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "mode": "0644"}
    edit(cache.root / KEY, lambda told: told.update(files={name: empty}))
    assert "isn't a file's name" in why(cache)


def test_what_nobody_asks_for_any_more_goes_and_what_a_killed_run_left(cache: ModuleCache) -> None:
    old, left, running = cache.root / OTHER, cache.root / ".making-1", cache.root / ".making-2"
    for path, age in ((old, KEPT_SECONDS + 60), (left, 2 * 86400), (running, 60)):
        path.mkdir()
        os.utime(path, (time.time() - age,) * 2)
    os.utime(cache.root / KEY, (time.time() - KEPT_SECONDS - 60,) * 2)
    assert cache.load(KEY) == FILES  # used, and so kept
    cache.store("c" * 64, ABOUT, FILES)
    assert sorted(path.name for path in cache.root.iterdir()) == [running.name, KEY, "c" * 64]
