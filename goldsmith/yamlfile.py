"""YAML that remembers where each field stands, and checks it against a pydantic model.

An error names the file, the line, the field, what is wrong and the nearest right word.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from goldsmith.errors import GoldsmithError

M = TypeVar("M", bound=BaseModel)
Field = tuple[str | int, ...]
# field → the file and the line (from 1) that it stands at
Lines = dict[Field, tuple[Path, int]]


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key written twice (YAML keeps the last one, silently)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (str, int)):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key} stands here for the second time", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep)


def load_yaml(path: Path) -> Any:
    """The file's content, a doubled key refused. Raises GoldsmithError with the file, and the line where known."""
    try:
        return yaml.load(path.read_text(), Loader=_Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise GoldsmithError(f"can't be read: {error}", where=str(path)) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise GoldsmithError(f"not valid YAML: {error.problem}", where=f"{path}:{line}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise GoldsmithError(f"not valid YAML: {error}", where=str(path)) from None


def _lines(node: yaml.Node | None, path: Field = ()) -> dict[Field, int]:
    """The line (from 1) of every field of a YAML tree."""
    if node is None:
        return {}
    found = {path: node.start_mark.line + 1}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            child = (*path, key.value)
            found.update(_lines(value, child))
            found[child] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            found.update(_lines(value, (*path, index)))
    return found


def read_lines(path: Path) -> tuple[Any, Lines]:
    """The file's content, and where each of its fields stands. Raises GoldsmithError with file and line."""
    data = load_yaml(path)
    # the second reading, for the lines alone, can't fail: the first one passed
    lines = _lines(yaml.compose(path.read_text(), Loader=_Loader))
    return data, {field: (path, line) for field, line in lines.items()}


def read_yaml(path: Path, model: type[M]) -> M:
    """The file as a `model`. Raises GoldsmithError with file, line, field and the nearest candidates."""
    data, lines = read_lines(path)
    return validate(data, model, Places(path, lines))


def validate(data: Any, model: type[M], places: Places) -> M:
    """YAML's data as a `model`. Raises GoldsmithError with file, line, field and the nearest candidates."""
    try:
        return model.model_validate(data if data is not None else {})
    except ValidationError as error:
        raise _explain(places, model, error) from None


class Places:
    """Where the fields of a YAML file, or of several that were laid over each other, stand: for errors."""

    def __init__(self, path: Path, lines: Lines) -> None:
        """path: the file to name for what stands nowhere."""
        self._path, self._lines = path, lines

    def of(self, *field: str | int) -> str:
        """`images/lab/image.yml:12, stack.nccl.version`; of a field that isn't there, its nearest parent's line."""
        path, line = self._nearest(field)
        return f"{path}:{line}, {'.'.join(map(str, field)) or 'the file'}"

    def file_of(self, *field: str | int) -> Path:
        """The file that a field, or its nearest parent, stands in."""
        return self._nearest(field)[0]

    def _nearest(self, field: Field) -> tuple[Path, int]:
        known = field
        while known and known not in self._lines:
            known = known[:-1]
        return self._lines.get(known, (self._path, 1)) if known else (self._path, 1)


def _explain(places: Places, model: type[BaseModel], error: ValidationError) -> GoldsmithError:
    """The first of pydantic's complaints, as one of ours; the others are counted."""
    errors = error.errors()
    # a mistyped name also leaves the right one missing: the typo is what the person has to see
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    location = tuple(part for part in first["loc"] if isinstance(part, (str, int)))
    hint = ""
    if first["type"] == "extra_forbidden":
        candidates = sorted(_fields(model, location[:-1]))
        near = difflib.get_close_matches(str(location[-1]), candidates, n=3)
        what = "no such field"
        hint = f"did you mean {' or '.join(near)}?" if near else f"fields here: {', '.join(candidates)}"
    elif first["type"] == "missing":
        what = "is missing"
    else:
        what = first["msg"].removeprefix("Value error, ")
        if not isinstance(first["input"], (dict, list)):
            # a password that was put into an address must not be shown with it
            what += ", got " + re.sub(r"(://)[^/@]*@", r"\1…@", repr(first["input"]))
        if first["type"] == "string_type" and isinstance(first["input"], (int, float)):
            # 12.10 would come out as 12.1
            hint = "YAML reads that as a number: put it in quotes"
    if len(errors) > 1:
        hint = f"{hint}{'; ' if hint else ''}{len(errors) - 1} more error(s) in this file"
    return GoldsmithError(what, where=places.of(*location), hint=hint)


def _fields(model: type[BaseModel], location: tuple[str | int, ...]) -> set[str]:
    """The field names, as the file has them, of the (sub)model that stands at `location`."""
    current: Any = model
    for part in location:
        if _is_model(current):
            info = current.model_fields.get(str(part))
            current = info.annotation if info else None
        else:  # a mapping or a list: the part is a key or an index of it
            current = (get_args(current) or (None,))[-1]
        if not _is_model(current) and type(None) in get_args(current):  # Model | None
            current = next(one for one in get_args(current) if one is not type(None))
    return {info.alias or name for name, info in current.model_fields.items()} if _is_model(current) else set()


def _is_model(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, BaseModel)
