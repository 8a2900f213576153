"""A role that `make new-role` laid down is baked, deployed and audited, and no other file was touched by hand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from goldsmith.lock import Pool

from .conftest import PROJECT, Lab, copy_of_project, lab_site


@pytest.fixture
def other_project(lab: Lab) -> Iterator[Path]:
    """A copy of this checkout, with a lab of one node; it shares the pool, so that nothing is fetched again."""
    folder = copy_of_project(PROJECT / ".goldsmith/tests/project")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_a_new_role_is_baked_deployed_and_audited(lab: Lab, other_project: Path) -> None:
    state = Path(os.environ.get("GOLDSMITH_STATE") or PROJECT / ".goldsmith")
    # an image of its own name: the tests' lab keeps its own
    shutil.move(other_project / "images/lab", other_project / "images/motd")
    image = other_project / "images/motd/image.yml"
    image.write_text(image.read_text().replace("name: lab", "name: motd"))
    (other_project / "images/motd/image.lock").unlink()

    def goldsmith(*words: str, expect: int = 0) -> str:
        environment = {**os.environ, "GOLDSMITH_STATE": str(state)}
        command = [sys.executable, "-m", "goldsmith", *words]
        done = subprocess.run(command, cwd=other_project, env=environment, capture_output=True, text=True, timeout=900)
        said = f"$ goldsmith {' '.join(words)}\n{done.stdout}{done.stderr}"
        print(said)
        assert done.returncode == expect, said
        return done.stdout + done.stderr

    goldsmith("new-role", "motd", "--image", "motd")
    folder = other_project / "inventories/motd"
    site = lab_site(folder, name="gsrole", bridge="goldsmith-t1", network="10.213.11.", nodes="node01")
    variables = site / "group_vars/all.yml"
    variables.write_text(variables.read_text().replace("goldsmith_image: lab", "goldsmith_image: motd"))
    try:
        # baked: the manifest has it, and a deploy finds nothing to do
        said = goldsmith("lab", "up", "--site", "inventories/motd")
        assert "1 nodes, 0 changes" in said
        manifest = json.loads((state / "images/motd/manifest.json").read_text())
        assert "/etc/goldsmith/motd.conf" in json.dumps(manifest)

        # audited: its file is missed, under the role's own name
        ssh = ["ssh", "-F", str(state / "labs/gsrole/ssh/config"), "node01"]
        subprocess.run([*ssh, "rm /etc/goldsmith/motd.conf"], check=True, timeout=60)
        audit = json.loads(goldsmith("audit", "inventories/motd", "--format", "json", expect=2))
        assert {(one["check"], one["fact"], one["actual"]) for one in audit["findings"]} == {
            ("motd.file", "/etc/goldsmith/motd.conf", "absent")
        }

        # deployed; and its variable is the inventory's to set
        variables.write_text(variables.read_text() + "motd_message: changed\n")
        goldsmith("deploy", "inventories/motd")
        goldsmith("audit", "inventories/motd")
        done = subprocess.run([*ssh, "cat /etc/goldsmith/motd.conf"], capture_output=True, text=True, timeout=60)
        assert "message=changed" in done.stdout
    finally:
        goldsmith("lab", "down", "--remove", "--site", "inventories/motd")
        for left in (state / "images/motd", state / "build/motd"):
            shutil.rmtree(left, ignore_errors=True)
        Pool(state).index("motd").withdraw()
