"""The package transaction: what it would do, and what it refuses."""

import subprocess
from pathlib import Path

import pytest

from goldsmith import Package
from goldsmith.compare import Difference
from goldsmith.converge.operations.apt import Transaction, change, plan_transaction, refusals, sources
from goldsmith.model.desired import gather
from goldsmith.model.resource import PackageFile

from .make import lock

DESIRED = gather({"r": [
    Package("libnccl2", "2.22.3-1-1", held=True, files={"/usr/lib/libnccl.so.2": PackageFile(1, "a" * 64)}),
    Package("python3-torch", "2.6.0+dfsg-7", held=True),
    Package("chrony", "4.6.1-3"),
]})  # fmt: skip


def test_a_held_package_is_unheld_changed_and_held_again() -> None:
    found = [Difference("packages", "python3-torch", "2.6.0+dfsg-7", "2.5.1-1")]
    what = plan_transaction(DESIRED, found, held=["python3-torch", "libnccl2"])
    assert what == Transaction(("python3-torch=2.6.0+dfsg-7",), (), ("python3-torch",), ("python3-torch",))


def test_a_replaced_file_reinstalls_its_package() -> None:
    found = [Difference("contents", "/usr/lib/libnccl.so.2", "sha256 a", "sha256 b")]
    what = plan_transaction(DESIRED, found, held=["libnccl2"])
    assert what == Transaction((), ("libnccl2=2.22.3-1-1",), ("libnccl2",), ("libnccl2",))


@pytest.mark.parametrize("code", [0, 7])
def test_holds_come_back_even_if_apt_fails(tmp_path: Path, code: int) -> None:
    """The real shell line, with fakes for apt-get and apt-mark."""
    for name, ends in (("apt-get", code), ("apt-mark", 0)):
        fake = tmp_path / name
        fake.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/said\nexit {ends}\n')
        fake.chmod(0o755)
    line = change(lock(), "live", Transaction(("libnccl2=2",), (), ("libnccl2",), ("libnccl2",)))
    line = line.split("apt-mark unhold", 1)[1].replace(sources(lock(), "live"), ":")
    done = subprocess.run(["sh", "-c", f"apt-mark unhold{line}"], env={"PATH": f"{tmp_path}:/bin:/usr/bin"}, timeout=30)
    assert done.returncode == code
    said = (tmp_path / "said").read_text().splitlines()
    assert [one.split(" -o")[0] for one in said] == ["apt-mark unhold libnccl2", "apt-get -y", "apt-mark hold libnccl2"]


def test_a_dropped_hold_needs_no_apt() -> None:
    what = plan_transaction(DESIRED, [Difference("holds", "libnccl2", "held", "not held")], held=[])
    assert what == Transaction((), (), (), ("libnccl2",))


def test_a_hold_of_somebody_else_survives() -> None:
    what = plan_transaction(DESIRED, [Difference("packages", "chrony", "4.6.1-3", "4.5")], held=["chrony"])
    assert what.unhold == what.hold == ("chrony",)


def test_nothing_to_do() -> None:
    assert not plan_transaction(DESIRED, [], held=["libnccl2"])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Inst libnccl2 [2.21-1] (2.22.3-1-1 goldsmith:lab [amd64])", None),
        ("Inst chrony (4.6.1-3 goldsmith:lab [amd64]) []", None),
        ("Conf libnccl2 (2.22.3-1-1 goldsmith:lab [amd64])", None),
        ("Remv slurmd [24.11.5-4]", "it would remove slurmd"),
        ("Purg slurmd [24.11.5-4]", "it would remove slurmd"),
        ("Inst libfoo (1.0 goldsmith:lab [amd64])", "it would install libfoo 1.0, which isn't in the lock"),
        (
            "Inst libnccl2 (2.23.4-1 goldsmith:lab [amd64])",
            "it would install libnccl2 2.23.4-1; the lock has 2.22.3-1-1",
        ),
        (
            "Inst libnccl2 [1] (2.22.3-1-1 Debian:13.2/stable [amd64])",
            "it would take libnccl2 from Debian:13.2/stable, not the pool",
        ),
        ("Inst ???", "apt says something this version of goldsmith can't read: Inst ???"),
    ],
)
def test_refusals(line: str, reason: str | None) -> None:
    assert refusals(f"Reading package lists...\n{line}\n", lock()) == ([reason] if reason else [])
