"""YAML that remembers where each field stands, and checks it against a pydantic model.

An error names the file, the line, the field, what is wrong and the nearest right word.
"""

from __future__ import annotations

import difflib
import math
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from goldsmith.credentials import is_secret, short
from goldsmith.errors import GoldsmithError

M = TypeVar("M", bound=BaseModel)
Field = tuple[str | int, ...]
# field → the file and the line (from 1) that it stands at
Lines = dict[Field, tuple[Path, int]]


# An alias is written once and read each time: nine lines of them can stand for more than fits into memory. Counted
# are values and their characters, every alias written out; facts.yaml, the largest file that we have, has 20,000.
MOST = 500_000
DEEPEST = 64  # far below where Python, pydantic or a YAML writer gives up
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """SafeLoader that says where a value is that looks like a number or a date and is none."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int) and value.bit_length() > 64:
                raise ValueError("a number that no program has a use for")
            if isinstance(value, str):
                value.encode()  # "\\ud800" is half a character, which can't be written anywhere
            return value
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # the value isn't shown: nobody knows what it was meant to be
            kind = node.tag.rpartition(":")[2]
            what = "has a character that isn't one" if kind == "str" else f"looks like YAML's {kind}, and is none"
            raise _wrong(f"{what}: if it's text, put it in quotes", node) from None


# a single = is a tag of YAML 1.1, that PyYAML can read but not construct
_Loader.add_constructor("tag:yaml.org,2002:value", lambda _, node: node.value)


def _wrong(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def load_yaml(path: Path) -> Any:
    """The file's content, a doubled key refused. Raises GoldsmithError with the file, and the line where known."""
    return _loaded(path)[0]


def _loaded(path: Path) -> tuple[Any, dict[Field, int]]:
    """The file's content, and the line of each field."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise GoldsmithError(f"can't be read: {error}", where=str(path)) from None
    text = ""
    try:
        text = raw.decode()
        return _composed(text, path)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise GoldsmithError("can't be read: it isn't UTF-8", where=f"{path}:{line}") from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise GoldsmithError(f"not valid YAML: {error.reason}", where=f"{path}:{line}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise GoldsmithError(f"not valid YAML: {short(str(error.problem))}", where=f"{path}:{line}") from None
    except yaml.YAMLError as error:
        raise GoldsmithError(f"not valid YAML: {short(str(error))}", where=str(path)) from None
    except RecursionError:
        raise GoldsmithError("not valid YAML: it is nested too deeply", where=str(path)) from None


def _composed(text: str, path: Path) -> tuple[Any, dict[Field, int]]:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, {}
        _bounded(node, {}, ())
        _once(node, loader, set())
        return loader.construct_document(node), _lines(node)
    except (OverflowError, ValueError) as error:  # "\U00110000" is beyond what Python has characters for
        raise GoldsmithError(f"not valid YAML: {short(str(error))}", where=f"{path}:{loader.line + 1}") from None
    finally:
        loader.dispose()


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [one for pair in node.value for one in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _bounded(node: yaml.Node, known: dict[int, int], above: tuple[int, ...]) -> int:
    """How much a node stands for. known: of nodes that were counted; above: those that this one is in."""
    if id(node) in above:
        raise _wrong("this holds itself, by an alias to it", node)
    if len(above) > DEEPEST:
        raise _wrong(f"nested more than {DEEPEST} deep", node)
    if id(node) not in known:
        inner = sum(_bounded(one, known, (*above, id(node))) for one in _children(node))
        known[id(node)] = 1 + inner + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
        if known[id(node)] > MOST:
            raise _wrong("too much, with its aliases (*x) written out", node)
    return known[id(node)]


def _once(node: yaml.Node, loader: _Loader, seen: set[int]) -> None:
    """Refuses a key written twice (YAML keeps the last one, silently), and merge keys (`<<`)."""
    if id(node) in seen:
        return
    seen.add(id(node))
    keys: set[Any] = set()
    for key_node, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if key_node.tag == _MERGE:
            raise _wrong("merge keys (<<) aren't read: write the fields out, or share them in a layer (extends)",
                         key_node)  # fmt: skip
        if not isinstance(key_node, yaml.ScalarNode):
            raise _wrong("a list or a mapping can't be a key", key_node)
        key = loader.construct_object(key_node, deep=True)
        if key in keys:
            raise _wrong(f"{short(str(key))} stands here for the second time", key_node)
        keys.add(key)
    for one in _children(node):
        _once(one, loader, seen)


def _lines(node: yaml.Node, path: Field = ()) -> dict[Field, int]:
    """The line (from 1) of every field of a YAML tree, which is known to be of a bounded size."""
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
    data, lines = _loaded(path)
    return data, {field: (path, line) for field, line in lines.items()}


def demand_plain(data: Any, places: Places, field: Field = ()) -> None:
    """Refuses what YAML knows and JSON doesn't: dates, infinity, sets, bytes, keys that aren't text. Such a value
    wouldn't come back as it went into a lock, or out of `lock --show`. Raises GoldsmithError with file and line."""
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(key, str):
                raise GoldsmithError(
                    f"a key must be text, and YAML reads this one as {type(key).__name__}",
                    where=places.of(*field, key if isinstance(key, int) and not isinstance(key, bool) else str(key)),
                    hint="put it in quotes",
                )  # fmt: skip
            demand_plain(value, places, (*field, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            demand_plain(value, places, (*field, index))
    elif isinstance(data, float) and not math.isfinite(data):
        raise GoldsmithError("a number must be finite", where=places.of(*field), hint="put it in quotes if it's text")
    elif not isinstance(data, (str, int, float, NoneType)):
        raise GoldsmithError(
            f"YAML reads this as a {type(data).__name__}, which can't be kept as it is", where=places.of(*field),
            hint="if it's text, put it in quotes; else use text, numbers, true and false, lists and mappings",
        )  # fmt: skip


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
        return f"{path}:{line}, {short('.'.join(map(str, field))) or 'the file'}"

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
        name = next((part for part in reversed(location) if isinstance(part, str)), "")
        if not isinstance(first["input"], (dict, list)) and not is_secret(name, first["input"]):
            what += f", got {short(repr(first['input']))}"
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
