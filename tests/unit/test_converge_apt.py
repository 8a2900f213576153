"""The package transaction: what it would do, what it refuses, what it makes of apt's words."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from goldsmith import Package
from goldsmith.compare import Difference
from goldsmith.converge.aptsays import Said, read_record, read_simulation, why_no_update, why_not
from goldsmith.converge.transaction import Commands, Transaction, plan_transaction
from goldsmith.model.desired import gather
from goldsmith.model.resource import PackageFile

from .make import lock, package

DESIRED = gather({"r": [
    Package("libnccl2", "2.22.3-1-1", held=True, files={"/usr/lib/libnccl.so.2": PackageFile(1, "a" * 64)}),
    Package("python3-torch", "2.6.0+dfsg-7", held=True),
    Package("chrony", "4.6.1-3"),
]})  # fmt: skip
INSTALLED = {"libnccl2": package("2.22.3-1-1"), "python3-torch": package("2.6.0+dfsg-7"), "chrony": package("4.6.1-3")}


def planned(found: list[Difference], apart: tuple[str, ...] = (), **packages: dict[str, Any]) -> Transaction:
    known = {name.replace("_", "-"): one for name, one in packages.items()}
    return plan_transaction(DESIRED, found, {**INSTALLED, **known}, apart)


def test_a_held_package_is_unheld_changed_and_held_again() -> None:
    found = [Difference("packages", "python3-torch", "2.6.0+dfsg-7", "2.5.1-1")]
    what = planned(found, python3_torch=package("2.5.1-1", held=True))
    assert what == Transaction(("python3-torch=2.6.0+dfsg-7",), (), ("python3-torch",), ("python3-torch",))


def test_a_replaced_file_reinstalls_its_package() -> None:
    found = [Difference("contents", "/usr/lib/libnccl.so.2", "sha256 a", "sha256 b")]
    what = planned(found, libnccl2=package("2.22.3-1-1", held=True))
    assert what == Transaction((), ("libnccl2=2.22.3-1-1",), ("libnccl2",), ("libnccl2",))


def test_a_half_installed_package_is_installed_again() -> None:
    """At the right version already, apt would leave it alone."""
    found = [Difference("packages", "chrony", "4.6.1-3", "4.6.1-3 (half-installed)")]
    assert planned(found, chrony=package("4.6.1-3", status="iHR")) == Transaction((), ("chrony=4.6.1-3",))


def test_a_dropped_hold_needs_no_apt() -> None:
    assert planned([Difference("holds", "libnccl2", "held", "not held")]) == Transaction((), (), (), ("libnccl2",))


def test_a_hold_of_somebody_else_survives() -> None:
    what = planned([Difference("packages", "chrony", "4.6.1-3", "4.5")], chrony=package("4.5", held=True))
    assert what.unhold == what.hold == ("chrony",)


def test_a_package_of_a_familys_source_is_held_too() -> None:
    """lyulyul/shine-cluster#30: it isn't in the lock, and moved by itself."""
    what = planned([Difference("holds", "libnccl-dev", "held", "not held")], libnccl_dev=package("2.21-1"))
    assert what == Transaction(hold=("libnccl-dev",))


def test_nothing_to_do() -> None:
    assert not planned([])


def test_preferences_come_in_a_step_of_their_own() -> None:
    found = [
        Difference("packages", "libnccl2", "2.22.3-1-1", "2.21-1"),
        Difference("packages", "chrony", "4.6.1-3", "not installed"),
    ]
    what = planned(found, ("chrony",), libnccl2=package("2.21-1", held=True), chrony=package("4.5"))
    first, second = what.steps()
    assert first.install == ("chrony=4.6.1-3",) and not first.hold
    assert second.install == ("libnccl2=2.22.3-1-1",) and second.unhold == second.hold == ("libnccl2",)
    assert len(planned(found, (), libnccl2=package("2.21-1")).steps()) == 1


@pytest.mark.parametrize("code", [0, 7])
def test_holds_come_back_even_if_apt_fails(tmp_path: Path, code: int) -> None:
    """The real shell line, with fakes for apt's and dpkg's programs."""
    fakes = {
        "apt-get": f"exit {code}", "apt-mark": "", "apt-config": "echo wait=7",
        "dpkg-query": "echo installed libnccl2; echo config-files libgone; exit 1",
    }  # fmt: skip
    for name, script in fakes.items():
        fake = tmp_path / name
        fake.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/said\n{script}\n')
        fake.chmod(0o755)
    commands = Commands(lock(), "live", str(tmp_path / "folder"))
    (tmp_path / "folder").mkdir()
    line = commands.change(Transaction(("libnccl2=2",), (), ("libgone", "libnccl2"), ("libnccl2",)))
    done = subprocess.run(["sh", "-c", line], env={"PATH": f"{tmp_path}:/bin:/usr/bin"}, timeout=30)
    assert done.returncode == code
    said = [one for one in (tmp_path / "said").read_text().splitlines() if one.startswith("apt-")]
    marked = [one.split()[0] + " " + one.split("srcpkgcache= ")[1] for one in said if one.startswith("apt-mark")]
    assert marked == ["apt-mark unhold libgone libnccl2", "apt-mark hold libnccl2"]
    assert said[0].startswith("apt-mark") and said[1].startswith("apt-config")
    assert said[2].startswith("apt-get -y") and "DPkg::Lock::Timeout=7" in said[2]
    assert said[3].startswith("apt-mark")


def simulated(line: str, recorded: dict[str, str] | None = None) -> Said:
    return read_simulation(f"Reading package lists...\n{line}\n", lock(), recorded or {}, INSTALLED)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Inst libnccl2 [2.21-1] (2.22.3-1-1 goldsmith:lab [amd64])", None),
        ("Inst chrony (4.6.1-3 goldsmith:lab [amd64]) []", None),
        ("Conf libnccl2 (2.22.3-1-1 goldsmith:lab [amd64])", None),
        ("Remv slurmd [24.11.5-4]", "it would remove slurmd"),
        ("Purg slurmd [24.11.5-4]", "it would remove slurmd"),
        ("Remv chrony [4.6.1-3]", "it would remove chrony"),
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
    assert simulated(line).refused == ((reason,) if reason else ())


def test_what_an_earlier_lock_had_in_a_family_is_replaced() -> None:
    """A new branch conflicts with the old one's names (NVIDIA/deepops#1123); what isn't on record is somebody's."""
    line = "Remv libnccl1 [1.0-1]"
    assert simulated(line, {"libnccl1": "nccl"}) == Said((), (), ("libnccl1",))
    assert simulated(line, {"libnccl1": "imex"}).refused, "this lock has no such family"
    assert simulated("Remv chrony [4.6.1-3]", {"chrony": "nccl"}).refused, "this lock has it"
    assert read_record("# a header of two\nlibnccl1 nccl\ncat: x: No such file or directory\n") == {"libnccl1": "nccl"}


def test_half_a_family_is_refused() -> None:
    two = lock({"libcuda1": ("550-1", "driver", "driver"), "nvidia-smi": ("550-1", "driver", "driver")})
    line = "Inst libcuda1 (550-1 goldsmith:lab [amd64])"
    [reason] = read_simulation(line, two, {}, {"nvidia-smi": package("535-1")}).refused
    assert reason == "family driver would be half of another version: nvidia-smi 535-1"
    assert not read_simulation(line, two, {}, {"nvidia-smi": package("550-1")}).refused


def test_what_goes_back_is_named() -> None:
    text = (
        "The following packages will be DOWNGRADED:\n  libnccl2\n"
        "0 upgraded, 0 newly installed, 1 downgraded, 0 to remove and 0 not upgraded.\n"
        "Inst libnccl2 [2.23.4-1] (2.22.3-1-1 goldsmith:lab [amd64])"
    )
    assert simulated(text).back == ("libnccl2 2.23.4-1 → 2.22.3-1-1",)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Err:1 http://gpool:8642 lab InRelease\n  Could not connect to gpool:8642 (10.0.0.1). - connect "
         "(111: Connection refused)\nE: Failed to fetch http://gpool:8642/dists/lab/InRelease  Could not connect",
         "the pool http://gpool:8642 gives no packages: nothing listens at gpool:8642."),
        ("E: Failed to fetch http://gpool:8642/dists/lab/InRelease  Could not resolve 'gpool'",
         "its name gpool isn't known on the node"),
        ("E: The repository 'http://10.0.0.1:1 lab Release' does not have a Release file.", "doesn't serve this image"),
        ("W: GPG error: x: NO_PUBKEY 1234\nE: The repository 'http://p lab InRelease' is not signed.", "signed"),
    ],
)  # fmt: skip
def test_why_the_pool_gives_nothing(said: str, told: str) -> None:
    line = why_no_update(said)
    assert told in line and "goldsmith pool serve" in line and "\n" not in line


def test_who_holds_the_lock() -> None:
    said = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812 (apt-get)\nE: Unable to …"
    assert why_not(said) == "process 812 (apt-get) holds a lock of dpkg or apt"
    waited = "process 812 (apt-get upgrade) holds dpkg's lock, and still did after 120 s"
    assert why_not(waited) == waited


def test_what_is_replaced_is_named_to_apt() -> None:
    """By itself apt takes no held package away, whatever it is allowed; and pins come first only where nothing goes."""
    what = Transaction(("a=2", "pins=2"), (), (), ("a",), frozenset({"pins"}))
    assert len(what.steps()) == 2
    what = what.replacing({"old", "older"}, ["old"])
    assert what.remove == ("old", "older") and what.unhold == ("old",) and what.steps() == [what]
    assert Commands(lock(), "live", "/f").simulate(what).endswith("-- a=2 pins=2 old- older-")


def test_dpkg_gives_its_reason_in_the_next_line() -> None:
    said = (
        "Preparing to unpack /x.deb ...\ndpkg: error processing archive /x.deb (--unpack):\n"
        " unable to create '/usr/lib/x.so.dpkg-new': No space left on device\n"
        "Errors were encountered while processing:\n /x.deb\nE: Sub-process /usr/bin/dpkg returned an error code (1)\n"
    )
    assert why_not(said) == (
        "dpkg: error processing archive /x.deb (--unpack): unable to create '/usr/lib/x.so.dpkg-new': No space left on "
        "device; E: Sub-process /usr/bin/dpkg returned an error code (1)"
    )
