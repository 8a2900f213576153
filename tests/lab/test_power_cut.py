"""A transaction that dies half-way on a running node, and another apt that is in the way."""

from __future__ import annotations

import subprocess
import time

import pytest

from .conftest import PROJECT, Lab

# PyTorch's packages take long enough to be met in the middle
REMOVED = "python3-torch libtorch2.6"


@pytest.fixture
def node(lab: Lab) -> str:
    """A node that lacks PyTorch, and so has a long transaction before it."""
    lab.on("node02", f"apt-mark unhold {REMOVED} >/dev/null && dpkg --remove --force-depends {REMOVED}")
    return "node02"


def deploying(lab: Lab, node: str) -> subprocess.Popen[str]:
    words = [str(PROJECT / ".venv/bin/goldsmith"), "deploy", str(lab.site), "--limit", node]
    return subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(lab: Lab, node: str, condition: str, what: str) -> None:
    for _ in range(240):
        if lab.on(node, f"if {condition}; then echo yes; fi"):
            return
        time.sleep(0.25)
    raise AssertionError(f"{node}: {what} never came")


def test_apt_is_killed_in_the_middle(lab: Lab, node: str) -> None:
    running = deploying(lab, node)
    # dpkg-deb runs while a package is unpacked, and then alone
    wait_for(lab, node, "pgrep -x dpkg-deb >/dev/null", "unpacking")
    # SIGKILL, all of them at once: nobody is there to clean up
    lab.on(node, "pkill -KILL -x 'apt-get|dpkg|dpkg-deb'; true")
    said = running.communicate(timeout=600)[0]
    assert running.returncode == 2, (running.returncode, said)
    assert "Traceback" not in said
    broken = lab.audit("--limit", node, expect=2)
    assert any("torch" in one["fact"] for one in broken["findings"])
    lab.goldsmith("deploy", "SITE", "--limit", node)
    assert "1 nodes, 0 changes" in lab.goldsmith("deploy", "SITE", "--limit", node).stderr
    assert not lab.audit("--limit", node)["findings"]
    assert not lab.on(node, "dpkg --audit")


def test_another_apt_is_waited_for_and_named(lab: Lab, node: str) -> None:
    hold = "import fcntl,time; f=open('/var/lib/dpkg/lock-frontend','w'); fcntl.lockf(f,fcntl.LOCK_EX); time.sleep(15)"
    lab.on(node, f'systemd-run --quiet --unit=other-apt python3 -c "{hold}"')
    wait_for(lab, node, "systemctl -q is-active other-apt", "the other apt")
    started = time.monotonic()
    lab.goldsmith("deploy", "SITE", "--limit", node)
    assert time.monotonic() - started > 8, "it had to wait"
    assert not lab.audit("--limit", node)["findings"]
