"""What goldsmith.lock reads of apt's outputs: captured ones, and this machine's own apt."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldsmith.lock.apt import Apt, Inst, conflict, machine_settings, parse_simulation, update_error
from goldsmith.lock.fetch import parse_status, reporter
from goldsmith.lock.sources import Source
from goldsmith.process import run
from tests.unit.lock_debs import Deb, Repository, needs_apt

pytestmark = pytest.mark.contract
DATA = Path(__file__).parents[1] / "data/apt"
KEYRINGS = ["/usr/share/keyrings/some.gpg"]


def data(name: str) -> str:
    return (DATA / name).read_text()


def test_inst_lines() -> None:
    found = {one.name: one for one in parse_simulation(data("simulate.txt"))}
    assert len(found) == 12
    assert found["libc6"] == Inst("libc6", "2.41-12+deb13u5", "Debian:13.8/stable", "amd64")
    assert found["bsdutils"] == Inst("bsdutils", "1:2.41.5-0+deb13u1", "Debian:13.8/stable", "amd64")
    assert found["tzdata"].architecture == "all"
    assert found["libzstd1"].origin == "Debian-Security:13/stable-security"


def test_inst_lines_of_other_situations() -> None:
    text = "Inst a:i386 [1.0] (2.0 Debian:13.8/stable [i386]) [b:amd64 ]\nInst c (1 goldsmith:lab [all])\n"
    assert parse_simulation(text) == [
        Inst("a", "2.0", "Debian:13.8/stable", "i386"),
        Inst("c", "1", "goldsmith:lab", "all"),
    ]


def test_reasons_of_conflicts() -> None:
    reason = conflict(data("conflict-packages.txt"), "")
    assert "exim4-daemon-light : Conflicts: mail-transport-agent" in reason
    assert "unstable" not in reason and "Reading" not in reason
    reason = conflict(data("conflict-pins.txt"), "E: Unable to correct problems, you have held broken packages.\n")
    assert "libkrb5-3 (= 1.21.3-5+deb13u2) but 1.21.3-5+deb13u1 is to be installed" in reason
    assert conflict("", "E: a\nE: b\n") == "E: a\n  E: b"


@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [
        ("update-no-key.txt", "6ED0E7B82643E131", "debian-archive-keyring"),
        ("update-no-key-sqv.txt", "7B63BF3E135515E09554BA374EE4358B5B6BAC1C", "debian-archive-keyring"),
        ("update-bad-keyring-sqv.txt", "can't be verified", "nothing was taken"),
        ("update-no-network.txt", "can't be reached", "proxy"),
        ("update-no-suite.txt", "the mirror has no suite nosuch", "base.suites"),
    ],
)
def test_reasons_of_failed_updates(name: str, what: str, hint: str) -> None:
    error = update_error(data(name), [Source("http://mirror.invalid", "trixie", ("main",), one) for one in KEYRINGS])
    assert what in error.what and hint in error.hint


def test_status_lines() -> None:
    numbers = [parse_status(line) for line in data("download.txt").splitlines()]
    assert {one for one in numbers if one} == {1, 2, 3}
    assert parse_status("Get:1 http://mirror.invalid/x [1 kB]") is None
    assert parse_status("dlstatus:12:99.5:Retrieving file 12 of 237 (1min 3s remaining)") == 12


def test_progress_is_told_once_a_file(tmp_path: Path) -> None:
    (tmp_path / "0.deb").write_bytes(b"x" * 2_000_000)
    said: list[str] = []
    report = reporter(said.append, 3, 4_000_000, tmp_path)
    for line in data("download.txt").splitlines():
        report(line)
    assert said == ["1 of 3, 2 of 4 MB", "2 of 3, 2 of 4 MB", "3 of 3, 2 of 4 MB"]


@needs_apt
def test_this_machines_apt(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    debs = [Deb("one", fields={"Depends": "two (>= 1)"}), Deb("two", "2:1~x-1"), Deb("no", fields={"Conflicts": "one"})]
    repository.publish(debs)
    apt = Apt(tmp_path / "apt", [repository.source()], "amd64")
    apt.update(lambda _: None)
    assert apt.simulate(["one"]) == [
        Inst("two", "2:1~x-1", "Debian:13.2/stable", "amd64"),
        Inst("one", "1.0-1", "Debian:13.2/stable", "amd64"),
    ]
    with pytest.raises(Exception, match=r"Conflicts: one|one : Conflicts|Conflicts"):
        apt.simulate(["one", "no"])
    index, releases = apt.read()
    assert set(index.by_name) == {"one", "two", "no"} and releases[0].origin == "Debian:13.2/stable"


@needs_apt
def test_the_machines_settings_are_taken_but_none_that_weakens() -> None:
    lines = machine_settings()
    assert all(line.startswith("Acquire::") and line.endswith('";') for line in lines)
    assert not [line for line in lines if "Allow" in line or "IndexTargets" in line or "Languages" in line]


@needs_apt
def test_nothing_of_the_machine_but_those_settings(tmp_path: Path) -> None:
    apt = Apt(tmp_path / "apt", [], "amd64")
    settings = apt.run(["apt-config", "dump"], timeout=30, what="dump").out
    lines = [line for line in settings.splitlines() if "Invoke" in line or "Pre-Install-Pkgs" in line]
    assert [line for line in lines if not line.endswith(' "";')] == []
    shown = dict(line.rstrip(";").split(" ", 1) for line in settings.splitlines() if " " in line)
    assert shown["Dir::State::status"] == f'"{tmp_path}/apt/status"'
    assert shown["APT::Install-Recommends"] == '"false"'
    assert "installed" not in run(["apt-config", "--version"], timeout=30, what="version").out.lower()
