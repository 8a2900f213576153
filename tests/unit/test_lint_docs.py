"""The page about linting: its commands end as it says, and it shows what they print."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.docs import PROJECT, commands

PAGE = PROJECT / "docs/lint-an-image.md"
ENDS_WITH = {"images/h100-ubuntu2404": 1}


@pytest.mark.parametrize("words", commands(PAGE), ids=" ".join)
def test_command(words: list[str]) -> None:
    assert words[0] == "goldsmith"
    # nothing is reached over the network: a proxy that isn't there would be asked first
    environment = {**os.environ, "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == ENDS_WITH.get(words[2], 0), done.stdout + done.stderr
    if words[2] in ENDS_WITH:
        shown = [line[4:] for line in PAGE.read_text().splitlines() if line.startswith(("    WARN", "            "))]
        assert shown and done.stdout.splitlines()[: len(shown)] == shown


def test_there_are_commands() -> None:
    assert len(commands(PAGE)) == 3
