"""`goldsmith pool serve` says that it serves when it does."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from goldsmith.cli import pool as module
from goldsmith.errors import GoldsmithError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".goldsmith/pool").mkdir(parents=True)
    monkeypatch.setattr(module, "find_project", lambda: tmp_path)
    monkeypatch.setattr(module, "serve", lambda *_: None)
    return tmp_path


def test_a_port_that_is_taken(project: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = CliRunner().invoke(module.pool, ["serve", "--port", str(taken.getsockname()[1])])
    assert isinstance(result.exception, GoldsmithError) and "can't listen" in result.exception.what
    assert "serving" not in result.output


def test_a_port_that_is_free(project: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = CliRunner().invoke(module.pool, ["serve", "--port", str(port)])
    assert result.exit_code == 0 and f"on http://127.0.0.1:{port}/" in result.output
