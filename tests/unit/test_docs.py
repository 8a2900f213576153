"""The documentation shows commands that exist, and links that lead somewhere. tests/lab/test_docs.py runs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click
import pytest

from goldsmith.cli import LATER, VERBS, cli
from goldsmith.cli.group import DefaultGroup
from tests.docs import PAGES, PROJECT, commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_parse(page: Path) -> None:
    for words in commands(page):
        if words[0] == "goldsmith":
            command: click.Command = cli
            context = click.Context(cli)
            arguments = words[1:]
            while isinstance(command, click.Group):
                if isinstance(command, DefaultGroup) and arguments[0] not in command.commands:
                    arguments.insert(0, command.default)
                name = arguments.pop(0)
                found = command.get_command(context, name)
                assert found is not None, words
                command = found
            command.make_context(command.name, list(arguments), parent=context)
        elif words[0] == "make":
            subprocess.run(["make", "--dry-run", *words[1:]], cwd=PROJECT, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


def test_verbs_that_are_not_there_are_named() -> None:
    readme = (PROJECT / "README.md").read_text()
    for verb in VERBS:
        if verb not in ("new-role", "pool"):
            assert f"`goldsmith {verb}" in readme, verb
    assert not set(VERBS) & set(LATER)
