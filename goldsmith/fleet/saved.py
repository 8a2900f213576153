"""Saved probes: NODE.json files in a folder, as `goldsmith audit --save DIR` writes them. Judged offline."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from goldsmith import atomic
from goldsmith.errors import GoldsmithError
from goldsmith.fleet.answer import Answer
from goldsmith.model.node import Node
from goldsmith.model.probe import parse_probe


def read_saved(folder: Path, nodes: Iterable[Node]) -> list[Answer]:
    """The saved answer of each node; one without a file, or with a broken one, is UNKNOWN like any other."""
    if not folder.is_dir():
        raise GoldsmithError("there is no such folder", where=f"--saved {folder}", hint="it holds NODE.json files")
    return [_read(folder / f"{node.name}.json", node.name) for node in nodes]


def _read(path: Path, name: str) -> Answer:
    try:
        # one document, however it was indented
        text = json.dumps(json.loads(path.read_text()))
        return Answer(name, probe=parse_probe(name, text))
    except FileNotFoundError:
        return Answer(name, reason=f"no saved probe: {path} isn't there")
    except (OSError, ValueError, RecursionError) as error:
        return Answer(name, reason=f"the saved probe {path} can't be read: {error}")
    except GoldsmithError as error:
        return Answer(name, reason=f"{error.what} ({path})")


def save(folder: Path, answers: Iterable[Answer]) -> None:
    """Write each answered probe to NODE.json."""
    for answer in answers:
        if answer.probe:
            text = json.dumps(answer.probe.raw, indent=1, sort_keys=True) + "\n"
            atomic.write(folder / f"{answer.node}.json", text)
