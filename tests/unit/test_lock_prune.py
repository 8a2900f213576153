"""What may leave the pool: nothing that a lock or a published index needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from goldsmith.cli.pool import pool as command
from goldsmith.errors import GoldsmithError
from goldsmith.lock.pool import Pool
from goldsmith.lock.prune import prunable, prune
from goldsmith.model.lock import Lock
from tests.unit.make import lock as make_lock

A, B, C, D = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)


def file(root: Path, folder: str, digest: str) -> Path:
    path = root / folder / digest[:2] / digest / "x"
    path.parent.mkdir(parents=True)
    path.write_text("12345")
    return path


def lock_of(name: str, digest: str) -> Lock:
    lock = make_lock({"bash": ("5", "bash", None)})
    package = lock.packages["bash"].model_copy(update={"sha256": digest})
    return lock.model_copy(update={"image": name, "packages": {"bash": package}})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A is locked, B is listed by the index of an image that is gone, C and D by nobody."""
    monkeypatch.delenv("GOLDSMITH_STATE", raising=False)
    (tmp_path / "images/lab").mkdir(parents=True)
    (tmp_path / "roles").mkdir()
    (tmp_path / "images/lab/image.yml").write_text("")
    (tmp_path / "images/lab/image.lock").write_text(lock_of("lab", A).to_text())
    root = tmp_path / ".goldsmith/pool"
    for folder, digest in (("pool", A), ("pool", B), ("pool", C), ("wheels", D)):
        file(root, folder, digest)
    (root / "pool/cc/mine").mkdir()

    def make(folder: Path) -> None:
        (folder / "main/binary-amd64").mkdir(parents=True)
        (folder / "main/binary-amd64/Packages").write_text(f"Package: x\nSHA256: {B}\n")

    Pool(tmp_path / ".goldsmith").index("old").publish("1" * 64, make)
    return tmp_path


def test_what_is_needed_stays(project: Path) -> None:
    pool = Pool(project / ".goldsmith")
    found = prunable(project, pool)
    assert [path.name for path in found.unused] == [C, D] and found.size == 10 and found.indexes == ("old",)
    assert [path.name for path in prunable(project, pool, [lock_of("lab", C)]).unused] == [D]
    assert prune(project, pool) == found
    assert (pool.root / "pool/aa" / A / "x").is_file() and (pool.root / "pool/bb" / B / "x").is_file()
    assert not (pool.root / "pool/cc" / C).exists() and not (pool.root / "wheels/dd").exists()
    assert (pool.root / "pool/cc/mine").is_dir(), "what isn't named by its content isn't ours"
    assert not prunable(project, pool).unused


def test_an_index_is_forgotten_by_name_alone(project: Path) -> None:
    pool = Pool(project / ".goldsmith")
    found = prunable(project, pool, forget=["old"])
    assert [path.name for path in found.unused] == [B, C, D]
    assert prune(project, pool, forget=["old"]) == found
    assert list((pool.root / "dists").iterdir()) == []
    for name in ("lab", "nobody"):
        with pytest.raises(GoldsmithError):
            prunable(project, pool, forget=[name])


def test_in_doubt_nothing_is_removed(project: Path) -> None:
    (project / "images/lab/image.lock").write_text("{")
    with pytest.raises(GoldsmithError, match="not a lock"):
        prunable(project, Pool(project / ".goldsmith"))


def test_a_damaged_index_isnt_an_empty_one(project: Path) -> None:
    pool = Pool(project / ".goldsmith")
    packages = pool.index("old").link / "main/binary-amd64/Packages"
    packages.write_text("")
    with pytest.raises(GoldsmithError, match="isn't what was published"):
        prune(project, pool)
    packages.unlink()
    with pytest.raises(GoldsmithError, match="isn't what was published"):
        prune(project, pool)
    assert (pool.root / "pool/bb" / B / "x").is_file()


def test_the_command_tells_first(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    unused = project / ".goldsmith/pool/pool/cc" / C
    told = CliRunner().invoke(command, ["prune"])
    assert "would remove 2 files" in told.output and "--forget old" in told.output and unused.exists()
    done = CliRunner().invoke(command, ["prune", "--yes"])
    assert "removed 2 files" in done.output and not unused.exists()
    assert "nothing to remove" in CliRunner().invoke(command, ["prune"]).output
