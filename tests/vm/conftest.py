"""Two clones of images/lab's disk under QEMU, booted once, side by side, for all tests of this folder.

The second has a cloud-init seed. Under emulation the whole takes minutes. Where it can't run it is skipped, and says
why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import pytest

from goldsmith import host
from goldsmith.audit.run import Audit
from goldsmith.model.lock import Lock, read_lock
from goldsmith.project import state_dir
from goldsmith.vm import boot, reach
from goldsmith.vm.artifact import disk_of
from goldsmith.vm.boot import Booted
from goldsmith.vm.machine import TOOLS, Disk, Machine
from goldsmith.vm.reach import Login

PROJECT = Path(__file__).parents[2]
ARTIFACT = state_dir(PROJECT) / "images/lab"
PLAIN, SEEDED = "clone-1", "clone-2"
MORE_MIB = 2048  # that the clones' disks are larger, as a real machine's is
# QEMU's DHCP names a name server only on a network that isn't cut off: a second one, for the second machine
NAME_SERVER = (
    *("-netdev", "user,id=open,net=10.0.3.0/24,dns=10.0.3.3"),
    *("-device", "virtio-net-pci,netdev=open,romfile=,mac=52:54:00:00:00:02"),
)
USER_DATA = """#cloud-config
hostname: named-by-its-seed
ssh_authorized_keys: ["{key}"]
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a machine."""
    here = Path(__file__).parent
    reason = why_not()
    for item in items:
        if here in Path(item.fspath).parents:
            item.add_marker(pytest.mark.vm)
            if reason:
                item.add_marker(pytest.mark.skip(reason=f"no machine: {reason}"))


def why_not() -> str:
    """Why no machine can be made here; empty if one can."""
    if os.geteuid() != 0:
        return "not root"
    missing = host.missing_packages(TOOLS)
    if missing and host.find_tool("apt-get") is None:
        return f"this machine lacks {', '.join(sorted(missing))}, and apt-get"
    return ""


def goldsmith(*words: str, timeout: float = 1800, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command, as a user would."""
    command = [sys.executable, "-m", "goldsmith", *words]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=timeout)
    said = f"$ goldsmith {' '.join(words)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
    print(said)
    assert done.returncode == expect, said
    return done


@dataclass(frozen=True)
class Clones:
    """logins, booted: by name. disk: sha256 before anything was booted."""

    logins: dict[str, Login]
    booted: dict[str, Booted]
    audit: Audit
    lock: Lock
    seed_key: Path
    disk: str

    def run(self, name: str, *argv: str) -> str:
        return self.logins[name].run(argv).out.strip()


@pytest.fixture(scope="session")
def artifact() -> Path:
    """images/lab with its disk, built and signed as a user would; what is there already is kept."""
    goldsmith("lock", "images/lab")
    goldsmith("build", "images/lab", "--format", "rootfs,disk", "--sign", "lab")
    return ARTIFACT


@pytest.fixture(scope="session")
def clones(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clones]:
    """Two clones that have booted and were audited."""
    host.require_tools(TOOLS)
    folder = tmp_path_factory.mktemp("machines")
    folder.chmod(0o700)
    seed = tmp_path_factory.mktemp("seed")
    seed_key = reach.make_key(tmp_path_factory.mktemp("seed-key"))
    (seed / "meta-data").write_text("instance-id: goldsmith-test\n")
    (seed / "user-data").write_text(USER_DATA.format(key=reach.public(seed_key).strip()))
    disk = disk_of(artifact)
    before = digest(disk.path)
    plain = Machine(PLAIN, disk, size=disk_mib(disk) + MORE_MIB)
    seeded = replace(plain, name=SEEDED, identity=uuid4(), seed=seed, options=NAME_SERVER)
    with boot.clones([plain, seeded], folder) as logins:
        booted = [(login, boot.settle(login)) for login in logins]
        audit = boot.audit(PROJECT, "lab", booted)
        yield Clones(
            {one.name: login for login, one in booted},
            {one.name: one for _, one in booted},
            audit,
            read_lock(PROJECT / "images/lab"),
            seed_key,
            before,
        )
        assert boot.power_off(logins) == []
    assert digest(disk.path) == before, "the artifact was written to"


def disk_mib(disk: Disk) -> int:
    """The raw disk's size; it is in the artifact wherever a qcow2 is."""
    assert disk.format == "raw"
    return disk.path.stat().st_size >> 20


def digest(path: Path) -> str:
    with path.open("rb") as file:
        found = sha256()
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()
