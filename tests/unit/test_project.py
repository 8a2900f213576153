"""Where the project is: of the folder that is named, or else of the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.project import find_project


def test_an_image_outside_of_any_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, other, nowhere = tmp_path / "project", tmp_path / "other", tmp_path / "copied/images/x"
    for root in (project, other):
        for folder in ("roles", "images/x"):
            (root / folder).mkdir(parents=True)
    nowhere.mkdir(parents=True)
    monkeypatch.chdir(project / "images/x")
    assert find_project() == project and find_project(nowhere) == project
    assert find_project(other / "images/x") == other, "its own comes first"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GoldsmithError, match="no goldsmith project"):
        find_project(nowhere)
