"""The commands that the documentation shows: every indented line of a page that starts with a program of ours."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").glob("*.md"))]
_COMMAND = re.compile(r"^ {4,}((?:goldsmith|make|cp|pyinfra|pytest) .*)$")


def commands(page: Path) -> list[list[str]]:
    """The commands of a page in its order, each as words, without its comment."""
    lines = [match[1] for line in page.read_text().splitlines() if (match := _COMMAND.match(line))]
    return [shlex.split(line, comments=True) for line in lines]
