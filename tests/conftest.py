"""Tests say by a mark what they need of the machine (tests/needs.py)."""

from __future__ import annotations

import pytest

from tests.needs import PACKAGES, see_to


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the test's fixtures, which may use the tools already."""
    wanted = {tool: PACKAGES[tool] for mark in item.iter_markers("needs") for tool in mark.args}
    if lacking := see_to(wanted):
        pytest.skip(lacking)
