"""Python environments on a node: the real shell lines and the real probe, in a folder of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import FileUploadCommand, StringCommand
from pyinfra.api.command import PyinfraCommand

from goldsmith import File, PythonEnvironment
from goldsmith.compare import compare
from goldsmith.converge.operations import python
from goldsmith.lock.wheelhouse import Wheelhouse
from goldsmith.model.desired import gather
from goldsmith.model.lock import POOL_SOURCES, LockedEnvironment
from goldsmith.probe.node import environments as probing
from goldsmith.probe.node.run import Run

from .make import lock as make_lock
from .make import probe as make_probe
from .wheels_fake import index, resolved, stack, wheel

SYSTEM = subprocess.run(
    ["/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
    capture_output=True, text=True, timeout=30, check=False,
).stdout.strip() if Path("/usr/bin/python3").exists() else ""  # fmt: skip
WHEELS = sorted(Path("/usr/share/python-wheels").glob("pip-*.whl"))
needs_pip = pytest.mark.skipif(not (SYSTEM and WHEELS), reason="needs python3 and python3-pip-whl of Debian or Ubuntu")


class Tree:
    """A node: ROOT elsewhere, a pool of fake wheels, what the probe says, and commands run by the shell."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("UV_NO_CONFIG", "1")
        monkeypatch.setenv("UV_DEFAULT_INDEX", "file:///nonexistent/simple")
        self.folder, self.root = folder, folder / "opt/python"
        monkeypatch.setattr(python, "PYTHON_ROOT", str(self.root))
        monkeypatch.setattr(probing, "ROOT", str(self.root))
        self.house = Wheelhouse(folder / "pool")
        self.address = index(folder / "simple", stack(folder / "wheels", SYSTEM.replace(".", "")))

    def locked(self, *requirements: str) -> PythonEnvironment:
        """Resolve, fill the pool, publish."""
        made: LockedEnvironment = resolved(self.address, self.folder / "uv", *requirements, python=SYSTEM)
        self.house.fetch({"train": made}, self.folder / "uv", lambda _: None)
        lock = make_lock().model_copy(update={"environments": {"train": made}})
        self.house.publish(lock)
        return next(iter(lock.python_environments()))

    def facts(self, wanted: PythonEnvironment, *, deep: bool = False) -> dict[str, Any]:
        run = Run("/", {"environments": {"train": wanted.digest}, "deep": deep})
        return dict(json.loads(json.dumps(probing.environment_facts(run))))

    def differences(self, wanted: PythonEnvironment, *, deep: bool = False) -> dict[str, tuple[str, str]]:
        found = compare(gather({"r": [wanted]}), make_probe(environments=self.facts(wanted, deep=deep)))
        return {one.key: (one.expected, one.actual) for one in found if one.kind == "environments"}

    def deploy(self, wanted: PythonEnvironment) -> list[str]:
        facts = self.facts(wanted)["train"]
        return run_all(python.commands(wanted, facts, self.house.root.as_uri(), "lab", "live", "T"))

    def python(self, *words: str) -> str:
        done = subprocess.run(
            [str(self.root / "train/bin/python"), *words], capture_output=True, text=True, timeout=60, cwd="/"
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def folders(self) -> list[str]:
        return sorted(one.name for one in self.root.iterdir() if not one.is_symlink())


def run_all(commands: Iterable[PyinfraCommand]) -> list[str]:
    lines = []
    for one in commands:
        if isinstance(one, FileUploadCommand):
            Path(one.dest).write_bytes(one.src.getvalue())
        elif isinstance(one, StringCommand):
            line = one.get_raw_value()
            stdin = one.connector_arguments.get("_stdin")
            done = subprocess.run(["sh", "-c", line], input=stdin, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            lines.append(line)
    return lines


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(tmp_path, monkeypatch)


@needs_pip
def test_made_found_drifted_healed_and_rolled_back(tree: Tree) -> None:
    old = tree.locked("torch", "numpy<2.2")
    assert tree.differences(old) == {"train": ("3 locked wheels", "not there")}
    tree.deploy(old)
    assert tree.differences(old, deep=True) == {}
    assert tree.python("-c", "import numpy, torch; print(numpy.__version__, torch.__version__)") == "2.1.0 2.6.0"
    assert tree.folders == [old.folder]
    assert not list(tree.root.glob("train/lib/*/site-packages/pip*")), "nothing but the locked wheels"

    new = tree.locked("torch", "numpy")
    assert tree.differences(new) == {"train numpy": ("2.2.4", "2.1.0")}
    tree.deploy(new)
    assert tree.differences(new, deep=True) == {} and tree.folders == sorted([old.folder, new.folder])

    # back: the old one is still there, so only the link moves
    lines = tree.deploy(old)
    assert not any("pip" in line for line in lines) and tree.differences(old) == {}

    # somebody's pip install, over a locked one and beside it
    for path in (wheel(tree.folder / "w", "numpy", "1.26.0"), wheel(tree.folder / "w", "leftpad", "1.0")):
        pip = [f"{WHEELS[0]}/pip", "install", "-q", "--no-index", "--no-deps", "--force-reinstall", str(path)]
        tree.python("-B", *pip)
    assert tree.differences(old) == {"train numpy": ("2.1.0", "1.26.0"), "train leftpad": ("not in the lock", "1.0")}
    tree.locked("torch", "numpy<2.2")  # the pool's index is of one lock
    tree.deploy(old)
    assert tree.differences(old, deep=True) == {}
    # the damaged one is gone; the link's target has a name of its own
    assert os.readlink(tree.root / "train") == f"{old.folder}.1" and tree.folders == [f"{old.folder}.1"]


@needs_pip
def test_files_that_arent_as_recorded(tree: Tree) -> None:
    wanted = tree.locked("torch")
    tree.deploy(wanted)
    site = tree.root / f"train/lib/python{SYSTEM}/site-packages"
    text = (site / "torch/__init__.py").read_text()
    (site / "torch/__init__.py").write_text(text.replace("2.6", "2.7"))
    assert tree.differences(wanted) == {}  # the same size: a deep probe alone reads files
    assert tree.differences(wanted, deep=True)["train files"][1] == "torch/__init__.py is changed"
    (site / "torch/__init__.py").write_text("longer than it was\n")
    (site / "numpy/__init__.py").unlink()
    (site / "sitecustomize.py").write_text("")
    said = tree.differences(wanted)["train files"][1]
    assert said == "numpy/__init__.py is gone, sitecustomize.py is of no project, torch/__init__.py is changed"
    (tree.root / "train/pyvenv.cfg").write_text(f"include-system-site-packages = true\nversion = {SYSTEM}.1\n")
    assert "pyvenv.cfg" in tree.differences(wanted)["train"][1]


@needs_pip
def test_what_runs_keeps_its_environment(tree: Tree) -> None:
    """A job that was started through the link: its modules stay those of its environment, and so do its folders."""
    old, new = tree.locked("torch", "numpy<2.2"), tree.locked("torch", "numpy")
    tree.locked("torch", "numpy<2.2")
    tree.deploy(old)
    code = "import sys; print('up', flush=True); sys.stdin.readline(); import numpy; print(numpy.__version__)"
    job = subprocess.Popen([str(tree.root / "train/bin/python"), "-c", code], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert job.stdout and job.stdout.readline() == "up\n"
        tree.locked("torch", "numpy")
        tree.deploy(new)
        third = tree.locked("numpy")
        tree.deploy(third)
        assert old.folder in tree.folders, "in use: it stays"
        out, _ = job.communicate("\n", timeout=60)
        assert out == "2.1.0\n"
    finally:
        job.kill()
        job.wait(10)
    assert len(tree.folders) == 3
    tree.locked("torch", "numpy<2.2")
    tree.deploy(old)
    assert tree.folders == sorted([old.folder, third.folder])


@needs_pip
def test_a_wheel_that_isnt_the_locked_one_leaves_nothing(tree: Tree) -> None:
    wanted = tree.locked("torch")
    path = next(tree.house.root.glob("wheels/*/*/torch-*"))
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    with pytest.raises(AssertionError, match="Got  "):
        tree.deploy(wanted)
    assert tree.folders == [] and not (tree.root / "train").is_symlink()


@needs_pip
def test_the_same_bytes_each_time(tree: Tree) -> None:
    wanted = tree.locked("torch")
    contents = []
    for _ in range(2):
        tree.deploy(wanted)
        base = tree.root / wanted.folder
        contents.append({str(one.relative_to(base)): one.read_bytes() for one in base.rglob("*") if one.is_file()})
        subprocess.run(["rm", "-rf", str(tree.root)], check=True, timeout=30)
    assert contents[0] == contents[1] and any(name.endswith(".pyc") for name in contents[0])
    assert not any(str(tree.folder / "pool").encode() in text for text in contents[0].values())


ENVIRONMENT = PythonEnvironment("train", "3.13", "ab" * 32, {})


def state(link: str | None, **folders: str) -> dict[str, Any]:
    """What a probe says: folder → its mark; those with the right one are as locked."""
    facts = {"python": "3.13", "system_site": False, "runs": True, "projects": {}, "since": {}, "wrong": [],
             "wrong_count": 0, "changed": {"since": ""}}  # fmt: skip
    names = {name.replace("_", "-"): mark for name, mark in folders.items()}
    seen = {name: {**facts, "digest": mark} for name, mark in names.items() if name == link or mark == "ab" * 32}
    return {"link": link, "folders": seen, "taken": names}


def test_which_folder() -> None:
    own, good = ENVIRONMENT.folder, "ab" * 32
    key = own.replace("-", "_")
    assert python.choose(ENVIRONMENT, state(None)) == (own, False)
    assert python.choose(ENVIRONMENT, state(None, **{key: ""})) == (own, False)  # never finished: made anew
    assert python.choose(ENVIRONMENT, state(own, **{key: ""})) == (f"{own}.1", False)  # but not under a job
    assert python.choose(ENVIRONMENT, state(None, **{key: good})) == (own, True)
    damaged = state(own, **{key: good})
    damaged["folders"][own]["projects"] = {"x": "1"}
    assert python.choose(ENVIRONMENT, damaged) == (f"{own}.1", False)


def test_where_the_pool_is() -> None:
    sources = File(POOL_SOURCES, "# Managed\nTypes: deb\nURIs: http://goldsmith-pool:8642/\nSuites: lab\n")
    assert python.pool_url({POOL_SOURCES: sources}, "live") == "http://goldsmith-pool:8642"
    assert python.pool_url({}, "image") == "file:///run/goldsmith-pool"
    assert python.pool_url({}, "live") is None


def test_plain_http_is_trusted_for_the_pools_host_alone() -> None:
    lines = [one.get_raw_value() for one in python.make(
        PythonEnvironment("train", "3.13", "ab" * 32, {"x": python_wheel()}), "train-abababababab",
        "http://goldsmith-pool:8642", "lab", "live") if isinstance(one, StringCommand)]  # fmt: skip
    assert "--index-url http://goldsmith-pool:8642/simple/lab/train/ --trusted-host goldsmith-pool:8642" in lines[-1]
    assert "--require-hashes" in lines[-1] and "there is no /usr/bin/python3.13" in lines[0]
    assert lines[-1].index('pip" install') < lines[-1].index("sync -f") < lines[-1].index("/.complete")


def python_wheel() -> Any:
    from goldsmith.model.resource import PythonWheel

    return PythonWheel("1", "x-1-py3-none-any.whl", "0" * 64)


def test_what_couldnt_be_read_is_unknown() -> None:
    for facts in ("it broke", {"train": {"error": "Permission denied"}}):
        found = compare(gather({"r": [ENVIRONMENT]}), make_probe(environments=facts))
        assert [one.severity.name for one in found] == ["UNKNOWN"]
