"""A site whose user isn't root: with become everything works through `sudo -n`; without it, it is UNKNOWN."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from .conftest import Lab


@pytest.fixture
def ops(lab: Lab) -> Iterator[Lab]:
    """node04 is reached as the user ops, who may sudo without a password."""
    lab.on(
        "node04",
        "useradd --create-home --shell /bin/sh ops && install -d -o ops -m 0700 /home/ops/.ssh"
        " && install -o ops -m 0600 /root/.ssh/authorized_keys /home/ops/.ssh/authorized_keys"
        " && echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops && chmod 0440 /etc/sudoers.d/ops",
    )
    folder = lab.site / "host_vars"
    folder.mkdir(exist_ok=True)
    (folder / "node04.yml").write_text("ansible_user: ops\nansible_become: true\n")
    yield lab
    shutil.rmtree(folder)
    lab.on("node04", "userdel --remove ops; rm /etc/sudoers.d/ops")


def test_become(ops: Lab) -> None:
    ops.goldsmith("audit", "SITE")
    # a file, a package and a hold: uploads, apt and its simulation all need root
    ops.on("node04", "rm /etc/nccl.conf; dpkg --remove --force-all needrestart; apt-mark unhold libnccl2")
    ops.goldsmith("deploy", "SITE", "--limit", "node04")
    audit = ops.audit()
    assert len(set(audit["fingerprints"].values())) == 1


def test_without_become_nothing_is_ok(ops: Lab) -> None:
    (ops.site / "host_vars/node04.yml").write_text("ansible_user: ops\n")
    audit = ops.audit(expect=3)
    told = {one["check"] for one in audit["findings"] if one["node"] == "node04"}
    assert "goldsmith.root" in told
