"""The linters are tests: what they refuse doesn't land."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"], ["mypy", "roles", "deploy.py"]],
    ids=["ruff", "format", "mypy", "mypy-roles"],
)
def test_linter(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=PROJECT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
