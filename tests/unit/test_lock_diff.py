"""What changes between two locks, and what that does to a node."""

from __future__ import annotations

from typing import Any

import pytest

from goldsmith.lock.diff import changes, effects, text
from goldsmith.model.lock import Lock, LockedEnvironment, LockedWheel
from tests.unit.make import lock as make_lock

OLD = {
    "linux-image-6.8.0-51-generic": ("6.8.0-51.52", "linux-signed", "kernel"),
    "nvidia-dkms-550-open": ("550.144.03-1", "nvidia-graphics-drivers-550", "driver"),
    "nvidia-fabricmanager-550": ("550.144.03-1", "fabricmanager-550", "fabricmanager"),
    "libnccl2": ("2.21.5-1+cuda12.5", "nccl", "nccl"),
    "chrony": ("4.6.1-3", "chrony", None),
    "mawk": ("1.3", "mawk", None),
}


def other(lock: Lock, name: str, **update: Any) -> Lock:
    """The lock with one package changed, as another file would have it."""
    update.setdefault("sha256", "1" * 64)
    return lock.model_copy(
        update={"packages": {**lock.packages, name: lock.packages[name].model_copy(update=update)}}
    )  # fmt: skip


def test_nothing_changed() -> None:
    assert text(make_lock(OLD), make_lock(OLD)) == "the same packages and wheels"


def test_another_version_or_family_of_the_same_file_is_a_change() -> None:
    old = make_lock(OLD)
    for update in ({"version": "9.9"}, {"family": "rdma"}):
        new = other(old, "libnccl2", sha256=old.packages["libnccl2"].sha256, **update)
        assert [one.name for one in changes(old, new)] == ["libnccl2"]


def test_families_first_then_the_rest() -> None:
    old = make_lock(OLD)
    new = other(old, "mawk", version="1.4")
    new = other(new, "libnccl2", version="2.20.3-1+cuda12.5")
    new = other(new, "nvidia-dkms-550-open", version="550.163.01-1")
    new = other(new, "chrony")
    packages = dict(new.packages)
    packages["linux-image-6.8.0-60-generic"] = packages.pop("linux-image-6.8.0-51-generic").model_copy(
        update={"name": "linux-image-6.8.0-60-generic"}
    )
    new = new.model_copy(update={"packages": packages})
    assert [(one.name, one.kind) for one in changes(old, new)] == [
        ("linux-image-6.8.0-51-generic", "removed"), ("linux-image-6.8.0-60-generic", "added"),
        ("nvidia-dkms-550-open", "upgraded"), ("libnccl2", "downgraded"), ("chrony", "rebuilt"), ("mawk", "upgraded"),
    ]  # fmt: skip
    told = text(old, new)
    assert told.index("kernel:") < told.index("driver:") < told.index("nccl:") < told.index("other packages:")
    assert "libnccl2 2.21.5-1+cuda12.5 → 2.20.3-1+cuda12.5  (a downgrade)" in told
    assert "chrony 4.6.1-3: other content under the same version" in told
    assert told.endswith("2 upgraded, 1 downgraded, 1 rebuilt, 1 added, 1 removed")


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ("linux-image-6.8.0-51-generic", ["reboot: another kernel"]),
        ("nvidia-dkms-550-open", ["DKMS builds", "reboot, or unload", "jobs: drain"]),
        ("nvidia-fabricmanager-550", ["jobs: drain", "nvidia-fabricmanager.service restarts"]),
        ("libnccl2", ["jobs: none while"]),
        ("mawk", []),
    ],
)
def test_effects(package: str, expected: list[str]) -> None:
    units = ["nvidia-fabricmanager.service"] if package == "nvidia-fabricmanager-550" else []
    old = make_lock(OLD)
    told = effects(changes(old, other(old, package, units=units)))
    assert len(told) == len(expected), told
    for (what, names), begin in zip(told, expected, strict=True):
        assert what.startswith(begin) and names == [package]


def test_wheels() -> None:
    def environment(version: str) -> LockedEnvironment:
        wheel = LockedWheel(name="torch", version=version, filename=f"torch-{version}-py3-none-any.whl", size=1,
                            sha256=version[0] * 64, why="required")  # fmt: skip
        return LockedEnvironment(python="3.12", platform="manylinux_2_39_x86_64", wheels={"torch": wheel})

    locks = [make_lock(OLD).model_copy(update={"environments": {"train": environment(one)}}) for one in ("2.5", "3.0")]
    assert [(one.name, one.group, one.old, one.new) for one in changes(*locks)] == [
        ("torch", "python train", "2.5", "3.0")
    ]
    assert "ranks of one job must all see the same" in text(*locks)
    assert [one.kind for one in changes(make_lock(OLD), locks[0])] == ["added"]
