"""A GPU stack of stubs: real debs with NVIDIA's names, versions and dependencies, and nothing in them. Real apt and
dpkg put them into real root file systems, from a repository that a test publishes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from goldsmith.fleet.rootfs import run_in_tree
from goldsmith.process import Done
from tests.unit.lock_debs import Deb, Repository

from .conftest import GOLDSMITH, PROJECT

MIRROR = "/run/mirror"
# what a test does in a project of its own, whose roles are other files than this process's
_WORK = """
import json, sys
from pathlib import Path
from goldsmith.audit.findings import judge
from goldsmith.converge.run import converge_tree
from goldsmith.errors import GoldsmithError
from goldsmith.fleet.answer import Answer
from goldsmith.fleet.rootfs import probe_tree
from goldsmith.image.base import make_base
from goldsmith.model.image import read_image
from goldsmith.model.lock import read_lock
from goldsmith.model.probe import parse_probe
from goldsmith.plan import plan_image
from goldsmith.project import state_dir
verb, project, image, tree = sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
try:
    if verb == "base":
        folder = project / "images" / image
        print(json.dumps(str(make_base(read_image(folder), read_lock(folder), state_dir(project)))))
    if verb == "converge":
        done = converge_tree(tree, image, project, state_dir(project) / "pool")
        print(json.dumps({"count": done.count, "notes": [line for lines in done.notes.values() for line in lines]}))
    if verb == "audit":
        plan = plan_image(project, image)
        probe = parse_probe(image, probe_tree(tree, plan.script()))
        answer = Answer(node=image, probe=probe)
        print(json.dumps([[one.check, str(one.severity.name), one.fact, one.actual] for one in judge(plan, answer)]))
except GoldsmithError as error:
    print(json.dumps({"error": str(error)}))
"""


def deb(name: str, version: str, source: str = "", depends: str = "", files: dict[str, bytes] | None = None,
        **fields: str) -> Deb:  # fmt: skip
    more = {key.capitalize(): value for key, value in fields.items()}
    return Deb(name, version, source, {**({"Depends": depends} if depends else {}), **more}, files or {})


def driver(version: str, revision: str = "0ubuntu1") -> list[Deb]:
    """A driver of Ubuntu's making: its branch is in its names, and two branches conflict."""
    branch, full = version.split(".")[0], f"{version}-{revision}"
    source = f"nvidia-graphics-drivers-{branch}"

    def one(name: str, *needs: str, **fields: str) -> Deb:
        generic = name.format("").replace("--", "-").rstrip("-")
        depends = ", ".join(f"{need.format(branch)} (= {full})" for need in needs)
        alike = {"provides": generic, "conflicts": generic, "replaces": generic}
        return deb(name.format(branch), full, source, depends, **{**alike, **fields})

    library = {f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}": b"a stub"}
    return [
        replace(one("libnvidia-compute-{}", "libnvidia-common-{}"), files=library),
        one("libnvidia-common-{}"),
        one("nvidia-utils-{}", "libnvidia-compute-{}"),
        one("nvidia-driver-{}-open", "libnvidia-compute-{}", "nvidia-utils-{}"),
    ]


def fabricmanager(version: str) -> Deb:
    branch = version.split(".")[0]
    return deb(f"nvidia-fabricmanager-{branch}", f"{version}-1", f"fabric-manager-{branch}")


def cuda_driver(version: str) -> list[Deb]:
    """A driver of NVIDIA's own repository: no branch in the names, and the metapackage asks for no exact version
    (NVIDIA/NemoClaw#8207)."""
    source, full = "nvidia-open-drivers", f"{version}-1"
    library = {f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{version}": b"a stub"}
    return [
        deb("nvidia-open", full, source, "libnvidia-ml1, libcuda1, nvidia-kernel-open-dkms"),
        deb("libnvidia-ml1", full, source, f"libcuda1 (= {full})", library),
        deb("libcuda1", full, source),
        deb("nvidia-kernel-open-dkms", full, source, f"libcuda1 (= {full})"),
    ]


def pinning(version: str) -> Deb:
    """NVIDIA's package that pins by a file."""
    text = "".join(
        f"Package: {name}\nPin: version {version}-*\nPin-Priority: 1000\n\n"
        for name in ("libnvidia-ml1", "libcuda1", "nvidia-kernel-open-dkms", "nvidia-open")
    )
    path = f"/etc/apt/preferences.d/nvidia-driver-pinning-{version}"
    return deb(f"nvidia-driver-pinning-{version}", f"{version}-1", files={path: text.encode()})


def container(version: str) -> list[Deb]:
    source = "libnvidia-container"
    return [
        deb("libnvidia-container1", f"{version}-1", source),
        deb("libnvidia-container-tools", f"{version}-1", source, f"libnvidia-container1 (= {version}-1)"),
    ]


def _journal(database: Path) -> list[Path]:
    return [path for path in (database / "updates").iterdir() if path.name.isdigit()]


def descendants(pid: int) -> list[int]:
    """All processes below one, the deepest last."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(path.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(path.parent.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found[1:]


def copy_tree(source: Path, copy: Path) -> None:
    """With its device nodes."""
    subprocess.run(["cp", "-a", "--reflink=auto", source, copy], check=True, timeout=120)


@dataclass
class Workshop:
    """A project of a test's own: images, the real roles, a pool that links to the shared one's debs."""

    root: Path
    repository: Repository
    bases: dict[str, Path] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "GOLDSMITH_STATE": str(self.state), "PYTHONPATH": str(PROJECT)}

    def setup(self) -> None:
        shutil.copytree(PROJECT / "roles", self.root / "roles", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(PROJECT / "deploy.py", self.root)
        shutil.copy(PROJECT / "pyproject.toml", self.root)
        shared = Path(os.environ.get("GOLDSMITH_STATE") or PROJECT / ".goldsmith") / "pool/pool"
        (self.state / "pool").mkdir(parents=True)
        if shared.is_dir():  # nothing is fetched twice
            subprocess.run(["cp", "-al", shared, self.state / "pool/pool"], check=True, timeout=120)

    def image(self, name: str, stack: dict[str, Any], packages: Iterable[str] = ()) -> subprocess.CompletedProcess[str]:
        """Lock an image of Debian's base and these stubs. Returns what `goldsmith lock` did."""
        folder = self.root / "images" / name
        folder.mkdir(parents=True, exist_ok=True)
        sets = {key: {"repository": "stubs", **value} for key, value in stack.items()}
        text = {
            "schema": 1, "name": name,
            "base": {
                "distribution": "debian", "release": "trixie", "suites": ["trixie"], "components": ["main"],
                "packages": ["python3", "systemd-sysv", *packages],
            },
            "repositories": {
                "stubs": {
                    "uri": f"file:{self.repository.root}", "suites": ["trixie"], "components": ["main"],
                    "key": {
                        "fingerprint": self.repository.key.fingerprint, "url": f"file://{self.repository.keyring}"
                    },
                }
            },
            "stack": sets,
            "roles": ["base", "nvidia_driver"],
        }  # fmt: skip
        (folder / "image.yml").write_text(yaml.safe_dump(text, sort_keys=False))
        return self.goldsmith("lock", f"images/{name}")

    def goldsmith(self, *words: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*GOLDSMITH, *words], cwd=self.root, env=self.environment, capture_output=True, text=True, timeout=timeout
        )  # fmt: skip
        print(f"$ goldsmith {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def work(self, verb: str, image: str, tree: Path | None = None) -> Any:
        argv = [sys.executable, "-c", _WORK, verb, str(self.root), image, str(tree or "/none")]
        done = subprocess.run(argv, cwd=self.root, env=self.environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        print(verb, image, done.stdout)
        return json.loads(done.stdout.splitlines()[-1])

    def tree(self, image: str, name: str) -> Path:
        """A copy of the base system; all images here have the same."""
        if not self.bases:
            self.bases["base"] = Path(self.work("base", image))
        tree = self.root / "trees" / name
        tree.parent.mkdir(exist_ok=True)
        copy_tree(self.bases["base"], tree)
        return tree

    def converge(self, image: str, tree: Path) -> dict[str, Any]:
        """{count, notes}, or {error}."""
        return self.work("converge", image, tree)  # type: ignore[no-any-return]

    def kill_in_the_middle(self, image: str, tree: Path, name: str, sign: str) -> None:
        """Start to converge; once dpkg says `sign` of it, SIGKILL everything at once, as a power cut does."""
        argv = [sys.executable, "-c", _WORK, "converge", str(self.root), image, str(tree)]
        process = subprocess.Popen(argv, cwd=self.root, env=self.environment, stdout=subprocess.DEVNULL)
        ends = time.monotonic() + 90
        database = tree / "var/lib/dpkg"
        try:
            while time.monotonic() < ends:
                texts = [path.read_text(errors="replace") for path in (database / "status", *_journal(database))]
                stanzas = [stanza for text in texts for stanza in text.split("\n\n") if f"Package: {name}\n" in stanza]
                if any(sign in stanza for stanza in stanzas) and process.poll() is None:
                    return
                time.sleep(0.05)
            raise AssertionError(f"dpkg never said {sign}")
        finally:
            for pid in [*descendants(process.pid), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(timeout=30)

    def audit(self, image: str, tree: Path) -> dict[tuple[str, str], tuple[str, str]]:
        """(check, fact) → severity, actual."""
        return {(check, fact): (severity, actual) for check, severity, fact, actual in self.work("audit", image, tree)}

    def run(self, tree: Path, command: str, check: bool = True) -> Done:
        """A shell command in the tree, which sees the repository at MIRROR."""
        done = run_in_tree(
            tree, ["sh", "-c", command], timeout=120, what="in a test's tree", binds={self.repository.root: MIRROR},
            check=False,
        )  # fmt: skip
        print(f"# {command}\n{done.out}{done.err}")
        assert not check or done.code == 0, done.tail
        return done

    def apt(self, tree: Path, words: str, check: bool = True) -> str:
        """The plain way: apt-get with the repository as a source, and the node's own preferences."""
        source = f"deb [trusted=yes] copy:{MIRROR} trixie main"
        options = "-o Dir::Etc::SourceList=/tmp/plain.list -o Dir::Etc::SourceParts=/dev/null"
        apt = f"DEBIAN_FRONTEND=noninteractive apt-get -y {options}"
        line = f"echo '{source}' > /tmp/plain.list; {apt} -qq update && {apt} {words}"
        done = self.run(tree, line, check)
        return done.out + done.err

    def versions(self, tree: Path, *names: str) -> dict[str, str]:
        """Package → version, with ` held` where it is."""
        done = self.run(tree, "dpkg-query -W -f '${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\\n'")
        rows = [line.split() for line in done.out.splitlines()]
        return {
            row[0]: row[1] + (" held" if row[2] == "hold" else "")
            for row in rows if row[3] == "installed" and (not names or row[0] in names)
        }  # fmt: skip
