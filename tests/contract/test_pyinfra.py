"""What we take from pyinfra's insides, tried: goldsmith.converge leans on each of these."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.contract
PROJECT = Path(__file__).parents[2]

DEPLOY = """
from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, StringCommand, operation

class Echo(FactBase):
    def command(self):
        return "cat"
    def process(self, output):
        return "|".join(output)

@operation()
def maybe(path):
    assert host.get_fact(Echo, _stdin="one\\ntwo") == "one|two"
    if not __import__("os").path.exists(path):
        yield StringCommand("touch", path)

@operation()
def fail():
    def no(state, host):
        host.log("because of this", __import__("pyinfra").logger.error)
        return False
    yield FunctionCommand(no, (), {})

maybe(host.data.path, name="make it")
if host.data.get("broken"):
    fail(name="break it")
"""


def pyinfra(folder: Path, *options: str, **data: Any) -> tuple[int, dict[str, Any]]:
    """Run our pyinfra_main on this machine; returns its exit code and what it left."""
    (folder / "deploy.py").write_text(DEPLOY)
    (folder / "hosts.py").write_text(f"all = [('@local', {{'path': {str(folder / 'made')!r}, **{data!r}}})]\n")
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    environment = {**os.environ, "GOLDSMITH_RESULT": str(result), "PYINFRA_YES": "", "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-m", "goldsmith.converge.pyinfra_main", "--json", *options, "hosts.py", "deploy.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, json.loads(result.read_text())


def test_a_dry_run_predicts_and_exits_with_0(tmp_path: Path) -> None:
    code, data = pyinfra(tmp_path, "--dry")
    assert code == 0
    assert [(one["name"], one["hosts_with_change"]) for one in data["plan"]] == [("make it", ["@local"])]
    assert not (tmp_path / "made").exists()


def test_a_run_changes_once(tmp_path: Path) -> None:
    code, data = pyinfra(tmp_path, "-y")
    assert (code, data["failed"]) == (0, [])
    assert data["results"][0]["success"] == ["@local"]
    code, data = pyinfra(tmp_path, "-y")
    assert data["results"][0]["no_change"] == ["@local"] and data["results"][0]["success"] == []


def test_a_failed_host_is_named_with_its_reason(tmp_path: Path) -> None:
    code, data = pyinfra(tmp_path, "-y", broken=True)
    assert code == 1 and data["failed"] == ["@local"]
    assert any("because of this" in line for line in data["said"]["@local"])
    assert data["results"][1]["error"] == ["@local"]


def test_our_connectors_are_registered() -> None:
    from pyinfra.api.connectors import get_execution_connectors

    assert {"goldsmith", "rootfs"} <= set(get_execution_connectors())


def test_paramiko_leaves_nagle_on_and_we_do_not() -> None:
    """The reason for a connector of our own: if this fails, paramiko has learnt it, and ours can go."""
    import inspect

    import paramiko.client

    from goldsmith.converge.connectors import ssh

    assert "TCP_NODELAY" not in inspect.getsource(paramiko.client)
    assert "TCP_NODELAY" in inspect.getsource(ssh)
