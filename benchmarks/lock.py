"""What an exact lock costs: resolving, the pool, and a deploy that has nothing to change; beside plain apt doing the
same with the same packages. `make bench-lock` runs it on the lab."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path

from measure import command, compare, report

from goldsmith.inventory.site import load_site
from goldsmith.lock.apt import Apt
from goldsmith.lock.pool import Pool
from goldsmith.lock.signing import sign
from goldsmith.lock.sources import sources_of
from goldsmith.model.image import read_image
from goldsmith.model.lock import Lock
from goldsmith.process import run
from goldsmith.project import find_project, state_dir

ROUNDS = 3


def plain_resolve(lock: Lock, folder: Path, suites: list[str], components: list[str]) -> None:
    """The indexes and a simulated installation, names alone: apt as people use it, nothing is kept."""
    sources, _ = sources_of(lock.distribution, lock.release, suites, components)
    apt = Apt(folder, sources, lock.architecture)
    apt.update(lambda _: None)
    apt.simulate(sorted(name for name, one in lock.packages.items() if not one.why.startswith("needed")))


def plain_pool(pool: Pool, folder: Path) -> None:
    """An index of all debs that are there, without a database and without looking at a lock, and its signature."""
    packages = run(["apt-ftparchive", "packages", "pool"], timeout=900, what="index", cwd=pool.root).out
    (folder / "Packages").write_text(packages)
    release = run(["apt-ftparchive", "release", folder], timeout=60, what="index").out
    (folder / "Release").write_text(release)
    sign(pool.key(), folder / "Release")


def on_node(site: Path, name: str, lock: Lock) -> list[str]:
    """ssh NODE apt-get install NAME=VERSION …, which changes nothing."""
    ssh = load_site(site).node(name).ssh
    assert ssh is not None
    exact = shlex.join(f"{one.name}={one.version}" for one in lock.packages.values())
    options = ["BatchMode=yes", f"UserKnownHostsFile={ssh.known_hosts}", "StrictHostKeyChecking=yes"]
    return ["ssh", "-i", str(ssh.key_file), "-p", str(ssh.port), *(word for one in options for word in ("-o", one)),
            f"{ssh.user}@{ssh.address}",
            f"apt-get -q update && apt-get -q -y install --no-install-recommends {exact}"]  # fmt: skip


def main() -> None:
    site = Path(sys.argv[1] if len(sys.argv) > 1 else "inventories/lab").absolute()
    loaded = load_site(site)
    node = loaded.node(loaded.names[0])
    lock = loaded.lock(node.image)
    project = find_project(site)
    base = read_image(project / "images" / node.image).base
    pool = Pool(state_dir(project))
    goldsmith = str(Path(sys.executable).parent / "goldsmith")
    image = str(project / "images" / node.image)
    with tempfile.TemporaryDirectory(prefix="goldsmith-bench-") as made:
        folder = Path(made)
        os.makedirs(folder / "index")
        print(f"image {lock.image}, {len(lock.packages)} packages, {ROUNDS} rounds in turn, medians\n\nresolve\n")
        print(report(compare({
            "goldsmith lock --refresh": command([goldsmith, "lock", image, "--refresh"]),
            "apt-get update, -s install": lambda: plain_resolve(lock, folder / "apt", base.suites, base.components),
        }, ROUNDS)))  # fmt: skip
        print("\nthe pool: index and sign\n")
        print(report(compare({
            "goldsmith's pool": lambda: pool.publish(lock),
            "apt-ftparchive, gpg": lambda: plain_pool(pool, folder / "index"),
        }, ROUNDS)))  # fmt: skip
        print(f"\nnothing to change on {node.name}\n")
        print(report(compare({
            "goldsmith deploy": command([goldsmith, "deploy", str(site), "--limit", node.name]),
            "goldsmith audit": command([goldsmith, "audit", str(site), "--limit", node.name], codes=(0, 1, 2)),
            "ssh, apt-get update, install": command(on_node(site, node.name, lock)),
        }, ROUNDS)))  # fmt: skip


if __name__ == "__main__":
    main()
