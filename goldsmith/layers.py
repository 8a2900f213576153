"""A YAML file that extends others: laid over each other, each field remembering the file and line that it came from.

Mappings are merged, everything else is replaced, and `null` takes out what a lower layer has.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from goldsmith.credentials import short
from goldsmith.errors import GoldsmithError
from goldsmith.yamlfile import Field, Lines, Places, demand_plain, read_lines, validate

M = TypeVar("M", bound=BaseModel)
EXTENDS = "extends"
DEEPEST = 50


def read_layers(path: Path, model: type[M]) -> tuple[M, Places]:
    """The file at `path` over what it extends, as a `model`; and where each field stands.

    `extends` names a folder with a file of the same name, or a file, relative to the file that says it; or several,
    the later over the earlier. Raises GoldsmithError with file, line and field.
    """
    data, lines = _layered(path, (), {})
    places = Places(path, lines)
    return validate(data, model, places), places


def _layered(path: Path, below: tuple[Path, ...], known: dict[Path, tuple[Any, Lines]]) -> tuple[Any, Lines]:
    """known: layers that were read for others; each is read once, however many ways lead to it."""
    own = path.resolve()
    if own not in known:
        known[own] = _read(path, (*below, own), known)
    return known[own]


def _read(path: Path, below: tuple[Path, ...], known: dict[Path, tuple[Any, Lines]]) -> tuple[Any, Lines]:
    data, lines = read_lines(path)
    places = Places(path, lines)
    demand_plain(data, places)
    if not isinstance(data, dict) or EXTENDS not in data:
        return data, lines
    bases = data.pop(EXTENDS)
    merged: Any = {}
    found: Lines = {}
    for number, name in enumerate(bases if isinstance(bases, list) else [bases]):
        where = places.of(EXTENDS, number) if isinstance(bases, list) else places.of(EXTENDS)
        base = _base(path, name, where)
        if base.resolve() in below:
            raise GoldsmithError(
                f"extends {short(name)}, which leads back to {path}", where=where, hint="break the circle"
            )
        if len(below) > DEEPEST:
            raise GoldsmithError(f"more than {DEEPEST} layers over each other", where=where)
        merged, found = lay_over((merged, found), _layered(base, below, known))
    return lay_over((merged, found), (data, lines))


def _base(path: Path, name: Any, where: str) -> Path:
    if not isinstance(name, str):
        got = type(name).__name__ if isinstance(name, (dict, list)) else name
        raise GoldsmithError(f"names a folder, or several, got {got}", where=where, hint="e.g. extends: ../common")
    base = Path(os.path.normpath(path.parent / name))
    try:
        base = base / path.name if base.is_dir() else base
        there = base.is_file()
    except OSError:  # a name that is too long
        there = False
    if not there:
        near = sorted(f"../{one.parent.name}" for one in path.parent.parent.glob(f"*/{path.name}"))
        hint = f"beside it: {short(', '.join(near))}" if near else ""
        # of an address the path would be what normpath made of it
        raise GoldsmithError(f"there is no {short(name if '@' in name else str(base))}", where=where, hint=hint)
    return base


def lay_over(lower: tuple[Any, Lines], upper: tuple[Any, Lines]) -> tuple[Any, Lines]:
    """The upper layer over the lower one, data and lines alike. Neither is changed."""
    lines = dict(lower[1])
    return _over(lower[0], upper[0], (), lines, upper[1]), lines


def _over(lower: Any, upper: Any, field: Field, lines: Lines, new: Lines) -> Any:
    if not (isinstance(lower, dict) and isinstance(upper, dict)):
        for old in [one for one in lines if one[: len(field)] == field]:
            del lines[old]
        lines.update({one: place for one, place in new.items() if one[: len(field)] == field})
        return upper
    if field in new:
        lines[field] = new[field]
    merged = dict(lower)
    for key, value in upper.items():
        merged[key] = _over(lower.get(key), value, (*field, key), lines, new)
        if value is None and key in lower:
            del merged[key]
    return merged
