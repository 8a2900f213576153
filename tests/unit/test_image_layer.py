"""The layer of packages: what is in it, and when it is made anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.image import layer
from goldsmith.image.layer import layer_key, packages_layer
from goldsmith.model.desired import gather
from goldsmith.model.node import Node
from goldsmith.model.resource import File, KernelModule, Package, Resource, Sysctl, Unit
from goldsmith.plan import Plan, packages_alone
from tests.unit import make

BASE = Path("/state/build/lab/base-0123456789abcdef")
PROMISED: tuple[Resource, ...] = (
    Package("libnccl2", "2.22.3-1-1", held=True),
    File("/etc/apt/preferences.d/x", "before", before_packages=True),
    File("/etc/nccl.conf", "after"),
    Unit("apt-daily.timer", "masked", before_packages=True),
    Unit("chrony.service", "enabled"),
    Sysctl("vm.swappiness", "1"),
    KernelModule("nvidia_peermem"),
)


def plan(*more: Resource) -> Plan:
    node = Node("lab", "lab", target="image")
    return Plan(node, make.lock(), (), gather({"nccl": [*PROMISED, *more]}))


def test_the_layer_has_packages_and_what_must_be_there_before_them() -> None:
    first = packages_alone(plan())
    assert not first.whole and plan().whole
    assert list(first.desired.packages) == ["libnccl2"]
    assert list(first.desired.files) == ["/etc/apt/preferences.d/x"]
    assert list(first.desired.units) == ["apt-daily.timer"]
    assert not first.desired.sysctls and not first.desired.modules


@pytest.mark.parametrize("more", [File("/etc/x", "x"), Unit("x.service", "enabled"), Sysctl("vm.x", "1")], ids=str)
def test_what_comes_after_the_packages_makes_no_other_layer(more: Resource) -> None:
    assert layer_key(plan(more), BASE, "e") == layer_key(plan(), BASE, "e")


@pytest.mark.parametrize(
    "more", [Package("chrony", "4.6.1-3"), File("/etc/x", "x", before_packages=True)], ids=["package", "file"]
)
def test_what_comes_before_or_with_them_makes_another(more: Resource) -> None:
    assert layer_key(plan(more), BASE, "e") != layer_key(plan(), BASE, "e")


def test_so_do_base_engine_and_lock() -> None:
    keys = {
        layer_key(plan(), BASE, "e"),
        layer_key(plan(), BASE.with_name("base-fedcba9876543210"), "e"),
        layer_key(plan(), BASE, "another"),
        layer_key(replace(plan(), lock=make.lock().model_copy(update={"kernel": "6.12.1"})), BASE, "e"),
    }
    assert len(keys) == 4


class Converge:
    """A fake: writes a file where pyinfra would install packages."""

    def __init__(self) -> None:
        self.runs = 0
        self.fails = False

    def __call__(self, tree: Path, image: str, project: Path, pool: Path, on_line: Any, *, whole: bool) -> None:
        assert not whole
        self.runs += 1
        (tree / "installed").write_text(str(self.runs))
        if self.fails:
            raise GoldsmithError("a package failed")


@pytest.fixture
def converge(monkeypatch: pytest.MonkeyPatch) -> Converge:
    fake = Converge()
    monkeypatch.setattr(layer, "converge_tree", fake)
    monkeypatch.setattr(layer, "build_modules", lambda works, patches: 0)
    return fake


def test_a_layer_is_made_once_and_the_one_before_it_goes(tmp_path: Path, converge: Converge) -> None:
    base = tmp_path / "build/lab" / BASE.name
    base.mkdir(parents=True)
    (base / "os").write_text("debian")
    first = packages_layer(plan(), base, "e", tmp_path, tmp_path)
    assert packages_layer(plan(File("/etc/x", "x")), base, "e", tmp_path, tmp_path) == first
    assert converge.runs == 1 and (first / "os").read_text() == "debian"
    second = packages_layer(plan(Package("chrony", "4.6.1-3")), base, "e", tmp_path, tmp_path)
    assert sorted(path.name for path in base.parent.iterdir()) == sorted([base.name, second.name])
    assert not (base / "installed").exists()


def test_a_layer_that_fails_leaves_the_one_before_it_and_nothing_else(tmp_path: Path, converge: Converge) -> None:
    base = tmp_path / "build/lab" / BASE.name
    base.mkdir(parents=True)
    first = packages_layer(plan(), base, "e", tmp_path, tmp_path)
    converge.fails = True
    with pytest.raises(GoldsmithError, match="a package failed"):
        packages_layer(plan(Package("chrony", "4.6.1-3")), base, "e", tmp_path, tmp_path)
    assert sorted(path.name for path in base.parent.iterdir()) == sorted([base.name, first.name])
