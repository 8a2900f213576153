"""A test that needs a program which isn't here is skipped when it runs, with the line that installs it."""

from __future__ import annotations

import os

import pytest

from tests.needs import see_to


def test_what_is_lacking_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    said = see_to({"sh": "dash", "no-such-program": "some-package"})
    assert "no-such-program" in said and "apt-get install some-package" in said and "dash" not in said


def test_nothing_is_lacking_where_all_is_there() -> None:
    assert see_to({"sh": "dash"}) == ""
