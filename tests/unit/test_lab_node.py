"""What a node gets before its boot, and the command that boots it: pure, no root needed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

import pytest

from goldsmith import cgroups, processes
from goldsmith.errors import GoldsmithError
from goldsmith.lab import identity, keys, network, node, state
from goldsmith.lab.settings import LabSettings, lab_settings


@pytest.fixture
def settings(tmp_path: Path) -> LabSettings:
    data = {"name": "t", "bridge": "gst0", "controller": "10.1.2.1/24", "pool_port": 8642}
    return lab_settings(data, {"node01": "10.1.2.11", "node02": "10.1.2.12"}, tmp_path, "site")


def test_hosts_names_the_pool_the_others_and_the_node_itself_by_loopback() -> None:
    nodes = {"node01": IPv4Address("10.1.2.11"), "node02": IPv4Address("10.1.2.12")}
    lines = identity.hosts("node01", nodes, IPv4Address("10.1.2.1")).splitlines()
    assert "127.0.1.1 node01" in lines
    assert "10.1.2.12 node02" in lines
    assert "10.1.2.1 goldsmith-pool" in lines
    assert not any(line.startswith("10.1.2.11") for line in lines)


def test_the_network_file_has_no_way_out() -> None:
    text = identity.network(IPv4Interface("10.1.2.11/24"))
    assert "Address=10.1.2.11/24" in text
    assert "Gateway" not in text and "DNS" not in text


def test_keys_are_made_once_and_known_before_the_first_boot(settings: LabSettings) -> None:
    keys.make(settings)
    first = {path: path.read_bytes() for path in settings.ssh.rglob("*") if path.is_file()}
    keys.make(settings)
    assert {path: path.read_bytes() for path in settings.ssh.rglob("*") if path.is_file()} == first
    known = (settings.ssh / "known_hosts").read_text().splitlines()
    assert [line.split()[0] for line in known] == ["node01,10.1.2.11", "node02,10.1.2.12"]
    assert known[0].split()[2] == keys.public(keys.host_key(settings, "node01")).split()[1]
    assert known[0].split()[2] != known[1].split()[2]
    for private in (settings.ssh / keys.CLIENT, keys.host_key(settings, "node01")):
        assert private.stat().st_mode & 0o777 == 0o600


def test_a_node_joins_its_control_groups_and_hides_its_mount(settings: LabSettings) -> None:
    argv = node.command(settings, "node01", Path("/golden"), [Path("/cg/a")])
    assert argv[:4] == ["unshare", "--mount", "--propagation", "slave"]
    assert "--keep-unit" in argv and "--register=no" in argv
    assert "--machine=gs-t-node01" in argv
    assert any(word.startswith("lowerdir=/golden,upperdir=") for word in argv)


def test_where_systemd_runs_it_makes_the_scope(settings: LabSettings) -> None:
    assert "--keep-unit" not in node.command(settings, "node01", Path("/golden"), [])


def test_the_console_is_shown_without_colours(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_bytes(b"[\x1b[0;32m  OK  \x1b[0m] Started \x1b[0;1;39mssh\x1b[0m.\r\n\r\n")
    assert node.console_tail(log) == "[  OK  ] Started ssh."
    assert node.console_tail(tmp_path / "none") == "(empty)"


def test_a_node_that_ended_is_told_with_its_console(settings: LabSettings) -> None:
    folder = settings.node_dir("node01")
    folder.mkdir(parents=True)
    (folder / "console.log").write_text("Kernel panic\n")
    gone = processes.Process(pid=2**22 + 1, start=1, boot="x")
    with pytest.raises(GoldsmithError, match=r"(?s)node01.*ended while it booted.*Kernel panic"):
        node.wait_for_ssh(settings, "node01", gone, lambda: True)


def test_the_state_survives_and_rubbish_is_told(settings: LabSettings) -> None:
    lab = state.LabState(image="lab", digest="d", trees={"golden": "/g"})
    lab.nodes["node01"] = state.NodeState(lower="golden", tree="/g")
    state.save(settings, lab)
    assert state.load(settings) == lab
    (settings.state / "state.json").write_text("{")
    with pytest.raises(GoldsmithError, match="can't be read"):
        state.load(settings)


def test_a_route_of_another_interface_is_a_conflict() -> None:
    lab = IPv4Network("10.1.2.0/24")
    ours = {"dst": "10.1.2.0/24", "dev": "gst0"}
    default = {"dst": "default", "dev": "eth0"}
    assert network.conflict([ours, default], lab, "gst0") == ""
    assert "10.1.0.0/16 by tun0" in network.conflict([{"dst": "10.1.0.0/16", "dev": "tun0"}], lab, "gst0")
    assert network.conflict([{"dst": "10.1.2.7", "dev": "wg0", "type": "local"}], lab, "gst0")


def test_a_bridge_of_another_lab_is_refused(settings: LabSettings) -> None:
    bridge = {"ifname": "gst0", "linkinfo": {"info_kind": "bridge"}}
    assert not network.find([], settings)
    assert network.find([{**bridge, "ifalias": network.alias(settings)}], settings)
    with pytest.raises(GoldsmithError, match="isn't lab t's"):
        network.find([{**bridge, "ifalias": "goldsmith /elsewhere/labs/t"}], settings)
    with pytest.raises(GoldsmithError, match="isn't lab t's"):
        network.find([{"ifname": "gst0", "linkinfo": {"info_kind": "veth"}}], settings)


def test_a_recycled_pid_is_nobody_and_is_not_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        real = processes.process(child.pid)
        assert real and real.alive
        for other in (
            processes.Process(real.pid, real.start - 1, real.boot),
            processes.Process(real.pid, real.start, "an earlier boot"),
        ):
            assert not other.alive
            processes.stop([other], patience=0)
        assert real.alive
        processes.stop([real], patience=5)
        assert not real.alive


def test_a_command_with_blanks_and_brackets_is_parsed() -> None:
    fields = " ".join(str(number) for number in range(1, 30))
    assert processes.parse_stat(f"12 (a b) c) S {fields}") == ("S", 19)


def test_a_started_process_inherits_no_open_file(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        # the program looks itself, once it runs: while it starts, Python opens and closes files of its own
        look = "import os, time; print({os.path.realpath(f'/proc/self/fd/{n}') for n in range(100)}, flush=True)"
        argv = [sys.executable, "-c", f"{look}; time.sleep(60)"]
        one = processes.spawn(argv, log=tmp_path / "log", cwd=tmp_path, what="test")
        try:
            for _ in range(200):
                if opened := (tmp_path / "log").read_text():
                    break
                time.sleep(0.05)
        finally:
            processes.stop([one], patience=2)
    assert str(tmp_path / "log") in opened
    assert str(tmp_path / "lock") not in opened


def test_systemds_hierarchies_are_found_in_mountinfo() -> None:
    text = (
        "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "31 25 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
        "32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    )
    assert cgroups.hierarchies(text) == [Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified")]


def test_the_groups_of_a_tree_are_removed_by_whoever_ends_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr(cgroups, "_tidy", lambda: removed.append("x"))
    lock = tmp_path / "lock"
    with cgroups.in_ours(lock):
        with cgroups.in_ours(lock):
            pass
        assert not removed, "another one may just be starting"
    assert removed == ["x"]
