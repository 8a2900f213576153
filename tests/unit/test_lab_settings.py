"""A lab's settings: plain data in, checked settings or one sentence out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.lab.settings import lab_settings

DATA = {"name": "lab", "bridge": "gs0", "controller": "10.1.2.1/24", "pool_port": 8642}
NODES = {"node01": "10.1.2.11", "node02": "10.1.2.12"}


def make(root: Path = Path("/state"), nodes: dict[str, str] | None = None, **changes: Any):
    return lab_settings({**DATA, **changes}, NODES if nodes is None else nodes, root, "site")


def test_settings_know_where_everything_is() -> None:
    settings = make()
    assert settings.state == Path("/state/labs/lab")
    assert settings.lock_file.parent == settings.state.parent  # outside of what `down --remove` removes
    assert str(settings.network) == "10.1.2.0/24"
    assert str(settings.address("node02")) == "10.1.2.12"


def test_two_labs_share_no_machine_name() -> None:
    assert make().machine("node01") != make(name="other").machine("node01")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "../x"}, "lab.name"),
        ({"bridge": "a-name-of-16-chr"}, "lab.bridge"),
        ({"pool_port": 80}, "lab.pool_port"),
        ({"pool_port": True}, "lab.pool_port"),
        ({"controller": "10.1.2.1/33"}, "lab.controller"),
        ({"controller": "8.8.8.8/24"}, "lab.controller"),
        ({"brigde": "gs0"}, "lab.brigde"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(GoldsmithError) as error:
        make(**changes)
    assert field in error.value.where


def test_a_misspelt_field_gets_the_right_word() -> None:
    with pytest.raises(GoldsmithError) as error:
        make(brigde="gs0")
    assert "bridge" in error.value.hint


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"node01": "10.9.9.9"}, "isn't in the lab's network"),
        ({"node01": "10.1.2.1"}, "the controller's already"),
        ({"node01": "10.1.2.5", "node02": "10.1.2.5"}, "node01's already"),
        ({"node01": ""}, "not an address"),
        ({"../up": "10.1.2.5"}, "not a host name"),
        ({}, "no nodes"),
    ],
)
def test_wrong_nodes_are_told(nodes: dict[str, str], words: str) -> None:
    with pytest.raises(GoldsmithError, match=words):
        make(nodes=nodes)


def test_overlay_punctuation_in_the_state_path_is_refused() -> None:
    with pytest.raises(GoldsmithError, match="comma"):
        make(root=Path("/a,b"))
