"""A YAML file that extends others: laid over each other, each field remembering the file and line that it came from.

Mappings are merged, everything else is replaced, and `null` takes out what a lower layer has.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from goldsmith.errors import GoldsmithError
from goldsmith.yamlfile import Field, Lines, Places, read_lines, validate

M = TypeVar("M", bound=BaseModel)
EXTENDS = "extends"


def read_layers(path: Path, model: type[M]) -> tuple[M, Places]:
    """The file at `path` over what it extends, as a `model`; and where each field stands.

    `extends` names a folder with a file of the same name, or a file, relative to the file that says it; or several,
    the later over the earlier. Raises GoldsmithError with file, line and field.
    """
    data, lines = _layered(path, ())
    places = Places(path, lines)
    return validate(data, model, places), places


def _layered(path: Path, below: tuple[Path, ...]) -> tuple[Any, Lines]:
    data, lines = read_lines(path)
    if not isinstance(data, dict) or EXTENDS not in data:
        return data, lines
    places = Places(path, lines)
    bases = data.pop(EXTENDS)
    merged: Any = {}
    found: Lines = {}
    for number, name in enumerate(bases if isinstance(bases, list) else [bases]):
        where = places.of(EXTENDS, number) if isinstance(bases, list) else places.of(EXTENDS)
        base = _base(path, name, where)
        if base.resolve() in (one.resolve() for one in (*below, path)):
            raise GoldsmithError(f"extends {name}, which leads back to {path}", where=where, hint="break the circle")
        merged, found = lay_over((merged, found), _layered(base, (*below, path)))
    return lay_over((merged, found), (data, lines))


def _base(path: Path, name: Any, where: str) -> Path:
    if not isinstance(name, str):
        raise GoldsmithError(f"names a folder, or several, got {name!r}", where=where, hint="e.g. extends: ../common")
    base = Path(os.path.normpath(path.parent / name))
    base = base / path.name if base.is_dir() else base
    if not base.is_file():
        near = sorted(f"../{one.parent.name}" for one in path.parent.parent.glob(f"*/{path.name}"))
        raise GoldsmithError(f"there is no {base}", where=where, hint=f"beside it: {', '.join(near)}" if near else "")
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
