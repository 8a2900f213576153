"""The story that goldsmith exists for, on real nodes: a clean lab, a new node, drift, its names, its healing.

The tests are chapters; each starts from where the one before ended, and ends with a clean audit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from .conftest import Lab
from .repack import other_torch


def folded(audit: dict[str, object]) -> dict[tuple[str, str], dict[str, str]]:
    """(check, fact) → the folded finding."""
    told = audit["folded"]
    assert isinstance(told, list)
    return {(one["check"], one["fact"]): one for one in told}


def test_the_lab_comes_up_clean(lab: Lab) -> None:
    audit = lab.audit()
    assert audit["severity"] == "OK" and audit["nodes"] == ["node01", "node02", "node03", "node04"]
    assert len(set(audit["fingerprints"].values())) == 1
    # a second run reuses what is there
    started = time.monotonic()
    lab.goldsmith("lab", "up", "--site", "SITE")
    assert time.monotonic() - started < 60


def test_stock_pyinfra_works(lab: Lab) -> None:
    """`pyinfra SITE.py deploy.py` with its own options, from the same data."""
    import subprocess
    import sys

    from .conftest import PROJECT

    face = lab.site.with_suffix(".py")
    face.write_text((PROJECT / "inventories/lab.py").read_text())
    command = [sys.executable, "-m", "pyinfra", str(face), "deploy.py", "--limit", "node01", "-y"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300)
    face.unlink()
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "[node01]" in done.stderr and "[node02]" not in done.stderr
    assert "[node01] Success" not in done.stderr, "an unchanged node was changed"


@pytest.fixture
def bare_node(lab: Lab) -> Iterator[str]:
    """A fifth node, on the bare base system."""
    hosts = lab.site / "hosts.yml"
    before = hosts.read_text()
    hosts.write_text(before.replace("node[01:04]", "node[01:05]"))
    lab.goldsmith("lab", "start", "node05", "--bare", "--site", "SITE")
    yield "node05"
    lab.goldsmith("lab", "stop", "node05", "--remove", "--site", "SITE")
    hosts.write_text(before)


def test_a_bare_node_converges_to_the_same_fingerprint(lab: Lab, bare_node: str) -> None:
    check = lab.goldsmith("deploy", "SITE", "--limit", bare_node, "--check", expect=2)
    assert "packages" in check.stderr
    lab.goldsmith("deploy", "SITE", "--limit", bare_node)
    audit = lab.audit()
    assert len(audit["nodes"]) == 5 and len(set(audit["fingerprints"].values())) == 1, audit["fingerprints"]
    second = lab.goldsmith("deploy", "SITE", "--limit", bare_node)
    assert "1 nodes, 0 changes" in second.stderr
    lab.goldsmith("deploy", "SITE", "--check")


def test_drift_is_named_and_healed(lab: Lab) -> None:
    # another PyTorch on two nodes; a hand edit and a lost hold on a third; another library on a fourth
    deb = other_torch("2.5.1-1")
    install = "cat > /root/torch.deb && dpkg -i --force-depends /root/torch.deb && rm /root/torch.deb"
    for node in ("node02", "node04"):
        lab.on(node, install, stdin=deb)
    lab.on("node03", "echo NCCL_DEBUG=INFO >> /etc/nccl.conf; apt-mark unhold libnccl2")
    library = lab.on("node01", "readlink -f /usr/lib/*/libnccl.so.2").strip()
    # the same size, one byte changed: nothing but its content tells
    lab.on("node01", f"printf x | dd of={library} bs=1 seek=1000000 conv=notrunc status=none")
    assert lab.on("node01", "dpkg-query -W -f '${Status} ${Version}' libnccl2").startswith("hold ok installed 2.22.3")

    audit = lab.audit(expect=2)
    told = folded(audit)
    torch = told["pytorch.package", "python3-torch"]
    assert torch["node"] == "node[02,04]"
    assert torch["actual"] == "2.5.1-1" and torch["expected"].startswith("2.6.0")
    assert torch["since"]
    conf = told["nccl.file", "/etc/nccl.conf"]
    assert conf["node"] == "node03" and "+ NCCL_DEBUG=INFO" in conf["evidence"]
    assert told["nccl.hold", "libnccl2"]["node"] == "node03"
    replaced = told["nccl.library-matches-lock", library]
    assert replaced["node"] == "node01" and replaced["severity"] == "FAIL"
    assert {one["node"] for one in told.values()} <= {"node01", "node03", "node[02,04]"}

    # both versions on one line of what a person reads
    text = lab.goldsmith("audit", "SITE", expect=2).stdout
    assert any("2.5.1-1" in line and "2.6.0" in line for line in text.splitlines())
    assert "node[02,04]" in text

    # an audit changes nothing: the next one says the same
    assert folded(lab.audit(expect=2)).keys() == told.keys()

    check = lab.goldsmith("deploy", "SITE", "--check", expect=2)
    assert "node[01-04]" in check.stderr
    lab.goldsmith("deploy", "SITE")
    assert lab.audit()["severity"] == "OK"
    # the hand edit was somebody's work: it is kept on the node
    assert "NCCL_DEBUG=INFO" in lab.on("node03", "cat /var/backups/goldsmith/etc/nccl.conf.*")
    assert "hold" in lab.on("node02", "dpkg-query -W -f '${Status}' python3-torch")


def test_dead_nodes_are_unknown_and_delay_nobody(lab: Lab) -> None:
    lab.on("node02", "systemctl stop ssh.socket ssh.service; systemctl stop sshd.service || :")
    lab.on("node04", "mv /usr/bin/python3 /usr/bin/python3.away")
    try:
        started = time.monotonic()
        audit = lab.audit("--deadline", "15", expect=3)
        assert time.monotonic() - started < 25
        told = {one["node"]: one for one in audit["folded"]}
        assert set(told) == {"node02", "node04"}
        assert all(one["severity"] == "UNKNOWN" for one in told.values())
        assert "connection refused" in told["node02"]["actual"]
        assert "python3" in told["node04"]["actual"]
        assert set(audit["fingerprints"]) == {"node01", "node03"}
        # nor does a deploy stop at them: the others are healed
        lab.on("node03", "rm /etc/nccl.conf")
        failed = lab.goldsmith("deploy", "SITE", expect=2)
        assert "1 changes on node03, failed on node[02,04]" in failed.stderr.replace("\n", " ")
        assert "python3" in failed.stderr and "Traceback" not in failed.stderr
        assert "node03" not in {one["node"] for one in lab.audit("--deadline", "15", expect=3)["findings"]}
    finally:
        lab.goldsmith("lab", "stop", "node02", "--site", "SITE")
        lab.goldsmith("lab", "start", "node02", "--site", "SITE")
        lab.on("node04", "mv /usr/bin/python3.away /usr/bin/python3")
    lab.goldsmith("audit", "SITE")


def test_a_changed_host_key_is_refused(lab: Lab) -> None:
    known = lab.state / "ssh/known_hosts"
    before = known.read_text()
    lines = before.splitlines()
    keys = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if line.strip()}
    first, second = list(keys)[:2]
    known.write_text("".join(f"{name} {keys[second] if name == first else key}\n" for name, key in keys.items()))
    try:
        audit = lab.audit(expect=3)
        [one] = audit["findings"]
        assert "host key" in one["actual"]
        assert lab.goldsmith("deploy", "SITE", expect=2).stderr
    finally:
        known.write_text(before)


def test_a_second_run_on_the_lab_is_refused(lab: Lab) -> None:
    import fcntl

    with (lab.state.parent / "gstest.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = lab.goldsmith("lab", "up", "--site", "SITE", expect=4)
    assert "in use by" in done.stderr
