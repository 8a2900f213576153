"""`goldsmith boot`: what is refused before anything starts, and what is made of what machines say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from goldsmith import process
from goldsmith.cli.boot import boot as verb
from goldsmith.errors import GoldsmithError, NotBuiltYet
from goldsmith.model.finding import Severity
from goldsmith.plan import Plan
from goldsmith.vm import boot, reach, running
from goldsmith.vm.accelerator import TCG
from goldsmith.vm.artifact import disk_of, require_architecture, require_seed
from goldsmith.vm.boot import Booted, findings_of, parse_look
from goldsmith.vm.folder import private
from goldsmith.vm.machine import Disk, Machine, Places
from goldsmith.vm.reach import Login
from goldsmith.vm.running import Running
from tests.needs import needs

GOOD = Booted("lab-1", "KVM", 9.0, "running", (), "6.12.1-amd64", "a" * 32, "root=x ro iommu=pt", ("ssh-ed25519 A",))
OTHER = replace(GOOD, name="lab-2", machine_id="b" * 32, host_keys=("ssh-ed25519 B",))
PLAN = cast(
    Plan,
    SimpleNamespace(
        lock=SimpleNamespace(image="lab", kernel="6.12.1-amd64"),
        desired=SimpleNamespace(parameters={"iommu=pt": None}),
    ),
)
PLANS = {"lab-1": PLAN, "lab-2": PLAN}


def checks(*booted: Booted) -> list[str]:
    found = list(findings_of(PLANS, booted))
    assert all(one.severity is Severity.FAIL for one in found)
    return [f"{one.node} {one.check} {one.fact}" for one in found]


def test_two_good_machines() -> None:
    assert checks(GOOD, OTHER) == []


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"state": "degraded", "failed": ("x.service",)}, "boot.state systemd"),
        ({"release": "6.12.2-amd64"}, "boot.kernel running kernel"),
        # a word that only begins like the promised one isn't it
        ({"command_line": "root=x ro iommu=pt2"}, "boot.command-line kernel command line"),
    ],
)
def test_what_is_not_as_it_should_be(change: dict[str, Any], check: str) -> None:
    assert checks(replace(GOOD, **change), OTHER) == [f"lab-1 {check}"]


def test_twins() -> None:
    assert checks(GOOD, replace(OTHER, machine_id=GOOD.machine_id)) == ["lab-2 boot.identity machine id"]
    assert checks(GOOD, replace(OTHER, host_keys=GOOD.host_keys)) == ["lab-2 boot.identity host keys"]


def login(tmp_path: Path) -> Login:
    machine = SimpleNamespace(
        machine=SimpleNamespace(name="lab-1"), accelerator=SimpleNamespace(name="TCG", slowness=20.0), port=4711
    )
    return Login(cast(Running, machine), tmp_path / "a key", tmp_path / "known_hosts", ("ssh-ed25519 A",))


def test_what_a_machine_says(tmp_path: Path) -> None:
    failed = "x.service loaded failed failed X\ny.mount loaded failed failed Y\n"
    text = f"degraded\n6.12.1-amd64\n{'a' * 32}\nroot=x ro\n{failed}"
    said = parse_look(text, login(tmp_path), 100.0)
    assert (said.state, said.release, said.command_line) == ("degraded", "6.12.1-amd64", "root=x ro")
    assert said.failed == ("x.service", "y.mount")
    with pytest.raises(GoldsmithError, match="too little"):
        parse_look("Connection reset\n", login(tmp_path), 1.0)


# A fake systemctl of a machine that never ends to start, or has a failed unit.
FAKE_SYSTEMCTL = """#!/bin/sh
case "$*" in
  "is-system-running --wait") {wait} ;;
  is-system-running) echo {state}; exit 1 ;;
  list-units*) {failed} ;;
  list-jobs*) {jobs} ;;
esac
"""


def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **what: str) -> Booted:
    """What is made of this machine, as it is with a fake systemctl: the real shell, the real words."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(FAKE_SYSTEMCTL.format(**what))
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    text = boot._LOOK.format(seconds=1).replace("/etc/machine-id", str(tmp_path / "id"))
    (tmp_path / "id").write_text("a" * 32 + "\n")
    return parse_look(process.run(["sh", "-c", text], timeout=30, what="look").out, login(tmp_path), 1.0)


def test_a_unit_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units = 'echo "x.service loaded failed failed X"'
    said = look(
        tmp_path, monkeypatch, wait="echo degraded; exit 1", state="degraded", failed=units, jobs="echo 1 2 3 running"
    )
    assert (said.state, said.failed) == ("degraded", ("x.service",))
    (finding,) = findings_of(PLANS, [replace(said, release=GOOD.release, command_line=GOOD.command_line)])
    assert (finding.severity, finding.check, finding.evidence) == (Severity.FAIL, "boot.state", ("x.service",))


def test_a_unit_that_is_started_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = 'echo "12 x.service start running"; echo "13 multi-user.target start waiting"'
    said = look(tmp_path, monkeypatch, wait="sleep 60", state="starting", failed=":", jobs=jobs)
    assert (said.state, said.failed) == ("starting", ("x.service",))


def test_an_accelerator_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    @contextmanager
    def start(machine: Machine, folder: Path, candidates: object = None) -> Iterator[Any]:
        asked.append(candidates)
        yield SimpleNamespace(machine=machine, accelerator=TCG, places=Places(folder), started=0.0)

    monkeypatch.setattr(running, "start", start)
    monkeypatch.setattr(reach, "make_key", lambda folder: folder / "key")
    monkeypatch.setattr(reach, "public", lambda key: "ssh-ed25519 A")
    monkeypatch.setattr(reach, "login", lambda one, *_: one)
    machines = [Machine(name, Disk(tmp_path / "disk.raw")) for name in ("a", "b")]
    with boot.clones(machines, tmp_path) as logins:
        assert len(logins) == 2
    assert asked == [None, (TCG,)]


def test_a_reboot_waits_for_the_reset_and_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sshd of the boot that ends still greets: an ssh to it hung until its deadline of 20 minutes."""
    said: list[object] = []

    class Fake:
        accelerator = TCG
        resets = 0
        started = 0.0
        places = Places(tmp_path)

        def require(self) -> None:
            said.append("asked")
            self.resets += reboots and len(said) == 3

        def error(self, what: str, hint: str = "") -> GoldsmithError:
            return GoldsmithError(what)

    one = replace(login(tmp_path), machine=cast(Running, Fake()))
    monkeypatch.setattr(Login, "run", lambda self, argv: said.append(argv[0]))
    monkeypatch.setattr(reach, "greeting", lambda *_: said.append("greeted"))
    reboots = True
    one.reboot()
    assert said == ["systemd-run", "asked", "asked", "greeted"]
    reboots = False
    with pytest.raises(GoldsmithError, match="doesn't reboot within"):
        one.reboot(timeout=0.1)


def test_ssh_trusts_this_machine_alone(tmp_path: Path) -> None:
    words = login(tmp_path).command()
    assert words[:3] == ["ssh", "-F", "none"]
    assert "StrictHostKeyChecking=yes" in words
    # ssh parts a path at blanks
    assert f'IdentityFile="{tmp_path}/a key"' in words
    assert reach.known_hosts(4711, ["ssh-ed25519 A", "ssh-rsa B"]) == (
        "[127.0.0.1]:4711 ssh-ed25519 A\n[127.0.0.1]:4711 ssh-rsa B\n"
    )


def test_an_artifacts_disk(tmp_path: Path) -> None:
    with pytest.raises(GoldsmithError, match=r"no disk\.raw or disk\.qcow2"):
        disk_of(tmp_path)
    (tmp_path / "disk.qcow2").touch()
    assert disk_of(tmp_path).format == "qcow2"
    (tmp_path / "disk.raw").touch()
    assert disk_of(tmp_path).format == "raw"
    assert disk_of(tmp_path, "qcow2").format == "qcow2"


def test_a_seed_that_cloud_init_would_pass_over(tmp_path: Path) -> None:
    (tmp_path / "user-data").write_text("#cloud-config\n")
    with pytest.raises(GoldsmithError, match="this one no meta-data"):
        require_seed(tmp_path)
    (tmp_path / "meta-data").write_text("instance-id: x\n")
    require_seed(tmp_path)


def test_another_architecture() -> None:
    require_architecture({"base": {"architecture": "amd64"}})
    with pytest.raises(NotBuiltYet, match="arm64"):
        require_architecture({"base": {"architecture": "arm64"}})


@needs("ssh-keygen")
def test_nothing_unverified_is_booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit import make_artifact

    @contextmanager
    def never(*_: object, **__: object) -> Any:
        raise AssertionError("it was booted")
        yield

    monkeypatch.setattr(boot, "clones", never)
    monkeypatch.setenv("GOLDSMITH_STATE", str(tmp_path / "state"))
    folder = make_artifact.artifact(make_artifact.tree(tmp_path / "tree"), tmp_path / "artifact", ("rootfs",))
    unsigned = CliRunner().invoke(verb, [str(folder)], standalone_mode=False)
    assert unsigned.return_value in (2, 3)  # 2 where this checkout has a lock of its own
    assert "not signed" in unsigned.output
    assert "it is not booted" in unsigned.output
    (folder / "SHA256SUMS").write_text("")
    changed = CliRunner().invoke(verb, [str(folder)], standalone_mode=False)
    assert changed.return_value == 2


def test_a_killed_boots_folder_goes_with_the_next_one(tmp_path: Path) -> None:
    left, young = (tmp_path / "vm" / name for name in ("boot-left", "boot-young"))
    for one in (left, young):
        one.mkdir(parents=True)
        (one / "lock").touch()
    os.utime(left, (1, 1))
    with private(tmp_path) as ours:
        assert ours.stat().st_mode & 0o777 == 0o700
        os.utime(ours, (1, 1))
        with private(tmp_path) as other:
            assert ours.is_dir()  # held: somebody boots there
            assert other != ours
    assert [one.name for one in (tmp_path / "vm").iterdir()] == ["boot-young"]
