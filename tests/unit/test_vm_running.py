"""Starting and ending machines, with a fake QEMU: what is tried, what is said, and that nothing is left."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.vm import running
from goldsmith.vm.accelerator import KVM, TCG
from goldsmith.vm.machine import Disk, Firmware, Machine
from tests.needs import needs
from tests.unit import qemu_fake

pytestmark = needs("setpriv")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """plan(kvm={…}, tcg={…}) → a machine that the fake QEMU runs so."""

    def make(**plan: dict[str, Any]) -> Machine:
        (tmp_path / "plan").write_text(json.dumps(plan))
        folder = qemu_fake.install(tmp_path / "bin", tmp_path / "plan")
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        (tmp_path / "variables").write_text("template")
        firmware = Firmware(tmp_path / "code", tmp_path / "variables")
        (tmp_path / "private").mkdir()
        return Machine("lab-1", Disk(tmp_path / "disk.raw"), firmware=firmware)

    return make


def pids(tmp_path: Path) -> dict[str, int]:
    """accelerator → the process that the fake QEMU was under it."""
    lines = (tmp_path / "plan.pids").read_text().splitlines()
    return {line.split()[0]: int(line.split()[1]) for line in lines}


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_kvm_where_it_works(machine: Callable[..., Machine], tmp_path: Path) -> None:
    with running.start(machine(), tmp_path / "private", (KVM, TCG)) as one:
        assert one.accelerator is KVM
        assert one.port == 37299
        assert one.wrong() == ""
        assert (tmp_path / "private/firmware-variables.fd").read_text() == "template"
    assert list(pids(tmp_path)) == ["kvm"]
    assert gone(pids(tmp_path)["kvm"])


@pytest.mark.parametrize("failure", [{"dies": 0.2}, {"refuses": "failed to initialize kvm: Permission denied"}])
def test_tcg_where_kvm_only_seems_to(
    machine: Callable[..., Machine], tmp_path: Path, capsys: pytest.CaptureFixture[str], failure: dict[str, Any]
) -> None:
    with running.start(machine(kvm=failure), tmp_path / "private", (KVM, TCG)) as one:
        assert one.accelerator is TCG
        assert gone(pids(tmp_path)["kvm"])
    assert gone(pids(tmp_path)["tcg"])
    said = capsys.readouterr().err
    assert "lab-1: KVM doesn't work here" in said
    assert ("KVM internal error" in said) or ("Permission denied" in said)
    assert "going on with TCG" in said


def test_nothing_works(machine: Callable[..., Machine], tmp_path: Path) -> None:
    bad = machine(kvm={"dies": 0}, tcg={"refuses": "-drive: Could not open 'x'"})
    with pytest.raises(GoldsmithError, match="Could not open"), running.start(bad, tmp_path / "private", (KVM, TCG)):
        pass
    assert all(gone(pid) for pid in pids(tmp_path).values())


def test_an_error_leaves_nothing(machine: Callable[..., Machine], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), running.start(machine(), tmp_path / "private", (TCG,)):
        raise KeyboardInterrupt
    assert gone(pids(tmp_path)["tcg"])


def test_the_power_button(machine: Callable[..., Machine], tmp_path: Path) -> None:
    with running.start(machine(), tmp_path / "private", (TCG,)) as one:
        assert one.power_off(10)
        assert one.ended
        assert "powered itself off" in one.wrong()


def test_and_the_plug(machine: Callable[..., Machine], tmp_path: Path) -> None:
    with running.start(machine(tcg={"stubborn": True}), tmp_path / "private", (TCG,)) as one:
        started = time.monotonic()
        assert not one.power_off(0.5)
        assert time.monotonic() - started < 5
        assert one.ended


def test_an_error_has_the_consoles_end(machine: Callable[..., Machine], tmp_path: Path) -> None:
    with running.start(machine(tcg={"dies": 0}), tmp_path / "private", (TCG,)) as one:
        (tmp_path / "private/console.log").write_text(
            "[FAILED] Failed to start x.service - X.\n[ 1.0] Kernel panic - not syncing: no root\n"
        )
        with pytest.raises(GoldsmithError, match=r"(?s)internal-error\)\. Failed: x\.service\..*Kernel panic"):
            one.require()
