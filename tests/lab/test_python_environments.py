"""A Python environment from lock to node: baked, drifted, healed, upgraded, rolled back. Its wheels are fakes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from goldsmith.lock import Pool
from goldsmith.lock.wheelhouse import Wheelhouse
from tests.unit.wheels_fake import index, stack, wheel

from .conftest import PROJECT, copy_of_project, lab_site

PLACE = "/opt/goldsmith/python/train"
IMAGE = """
python:
  train:
    python: "3.13"
    requirements:
      - torch==2.6.0
      - numpy==2.1.0
    index: {address}
"""


@dataclass(frozen=True)
class Site:
    """A project of the test's own with one node, `images/pyenv` and `inventories/pyenv`."""

    project: Path
    state: Path

    def goldsmith(self, *words: str, expect: int = 0) -> str:
        environment = {
            **os.environ, "GOLDSMITH_STATE": str(self.state), "UV_NO_CONFIG": "1",
            "UV_DEFAULT_INDEX": "file:///nonexistent/simple",
        }  # fmt: skip
        command = [sys.executable, "-m", "goldsmith", *words]
        done = subprocess.run(
            command, cwd=self.project, env=environment, capture_output=True, text=True, timeout=1800
        )  # fmt: skip
        said = f"$ goldsmith {' '.join(words)}\n{done.stdout}{done.stderr}"
        print(said)
        assert done.returncode == expect, said
        return done.stdout if words[0] == "audit" else done.stdout + done.stderr

    def audit(self, *words: str, expect: int = 0) -> dict[str, Any]:
        """fact → actual of what the audit found."""
        told = json.loads(self.goldsmith("audit", "inventories/pyenv", "--format", "json", *words, expect=expect))
        return {one["fact"]: (one["check"], one["actual"]) for one in told["findings"]}

    def on(self, *command: str, stdin: bytes | None = None) -> str:
        ssh = ["ssh", "-F", str(self.state / "labs/gspython/ssh/config"), "node01", *command]
        done = subprocess.run(ssh, input=stdin, capture_output=True, timeout=120)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.decode().strip()

    @property
    def numpy(self) -> str:
        return self.on(f"{PLACE}/bin/python -c 'import torch, numpy; print(numpy.__version__)'")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """The node as `lab up` leaves it."""
    project = copy_of_project(PROJECT / ".goldsmith/tests/python")
    found = Site(project, Path(os.environ.get("GOLDSMITH_STATE") or PROJECT / ".goldsmith"))
    shutil.move(project / "images/lab", project / "images/pyenv")
    image = project / "images/pyenv/image.yml"
    address = index(project / "fake/simple", stack(project / "fake/wheels"))
    text = (
        image.read_text()
        .replace("name: lab\n", "name: pyenv\n")
        .replace("roles:\n", "roles:\n  - python_environments\n")
    )
    image.write_text(text + IMAGE.format(address=address))
    (project / "images/pyenv/image.lock").unlink(missing_ok=True)
    folder = lab_site(project / "inventories/pyenv", name="gspython", bridge="goldsmith-t3", network="10.213.13.",
                      nodes="node01")  # fmt: skip
    variables = folder / "group_vars/all.yml"
    variables.write_text(variables.read_text().replace("goldsmith_image: lab", "goldsmith_image: pyenv"))
    try:
        said = found.goldsmith("lab", "up", "--site", "inventories/pyenv")
        assert "1 nodes, 0 changes" in said, "the image isn't what a deploy would make"
        yield found
    finally:
        found.goldsmith("lab", "down", "--remove", "--site", "inventories/pyenv")
        for left in ("images/pyenv", "build/pyenv", "apt/pyenv"):
            shutil.rmtree(found.state / left, ignore_errors=True)
        for one in (Pool(found.state).index("pyenv"), Wheelhouse(found.state / "pool").index("pyenv")):
            one.withdraw()
        shutil.rmtree(project, ignore_errors=True)


def test_it_is_in_the_image(site: Site) -> None:
    assert site.audit() == {} == site.audit("--deep")
    assert site.numpy == "2.1.0"
    assert site.on(f"ls {PLACE}/lib/python3.13/site-packages | grep -c -E '^(pip|setuptools)' || :") == "0"


def test_a_pip_install_is_found_and_undone(site: Site, tmp_path: Path) -> None:
    before = site.on(f"readlink {PLACE}")
    for path in (wheel(tmp_path, "leftpad", "1.0"), wheel(tmp_path, "numpy", "1.26.0")):
        site.on(f"cat > /root/{path.name}", stdin=path.read_bytes())
        site.on(
            f"set -- /usr/share/python-wheels/pip-*.whl; {PLACE}/bin/python -B $1/pip install -q --no-index --no-deps "
            f"--force-reinstall --root-user-action=ignore /root/{path.name} && rm /root/{path.name}"
        )
    check = "python_environments.environment"
    assert site.audit(expect=2) == {"train leftpad": (check, "1.0"), "train numpy": (check, "1.26.0")}
    site.goldsmith("deploy", "inventories/pyenv", "--check", expect=2)
    site.goldsmith("deploy", "inventories/pyenv")
    assert site.audit() == {} and site.numpy == "2.1.0"
    assert site.on(f"readlink {PLACE}") == f"{before}.1"
    assert "0 changes" in site.goldsmith("deploy", "inventories/pyenv")


def test_upgraded_and_rolled_back(site: Site) -> None:
    image, lock = site.project / "images/pyenv/image.yml", site.project / "images/pyenv/image.lock"
    old = image.read_text(), lock.read_text()
    link = site.on(f"readlink {PLACE}")
    image.write_text(old[0].replace("numpy==2.1.0", "numpy==2.2.4"))
    site.goldsmith("lock", "images/pyenv")
    assert site.audit(expect=2)["train numpy"] == ("python_environments.environment", "2.1.0")
    site.goldsmith("deploy", "inventories/pyenv")
    assert site.audit() == {} and site.numpy == "2.2.4"
    # back, by the old image.yml and image.lock: the environment is still on the node
    image.write_text(old[0])
    lock.write_text(old[1])
    site.goldsmith("pool", "fill", "images/pyenv")
    site.goldsmith("deploy", "inventories/pyenv")
    assert site.audit() == {} and site.numpy == "2.1.0"
    assert site.on(f"readlink {PLACE}") == link


def test_a_flipped_byte_in_the_pool_never_reaches_a_node(site: Site) -> None:
    path = next((site.state / "pool/wheels").glob("*/*/torch-2.6.0-cp313-*"))
    good = path.read_bytes()
    site.on(f"rm -rf {PLACE}/lib/python3.13/site-packages/torch")
    try:
        path.write_bytes(good[:40] + bytes([good[40] ^ 1]) + good[41:])
        assert path.name in site.goldsmith("pool", "verify", "images/pyenv", expect=4)
        said = site.goldsmith("deploy", "inventories/pyenv", expect=2)
        assert "sha256" in said.lower()
        assert site.on(f"ls /opt/goldsmith/python | grep -c -- -{'[0-9a-f]' * 12} || :") != "0"
    finally:
        path.write_bytes(good)
    site.goldsmith("deploy", "inventories/pyenv")
    assert site.audit() == {}
