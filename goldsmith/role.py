"""Roles: folders that the engine finds. It knows none by name.

ROLE/__init__.py holds the promise in its docstring and may name PACKAGES; beside it desired.py, deploy.py,
probe.py, checks.py and lint.py (each may be missing), templates/, defaults/main.yml and meta/argument_specs.yml.
"""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from goldsmith.credentials import short
from goldsmith.errors import GoldsmithError
from goldsmith.model.finding import Finding
from goldsmith.model.image import Image
from goldsmith.model.lock import Lock
from goldsmith.model.node import Node
from goldsmith.model.resource import Resource
from goldsmith.model.rule import Hit, Rule
from goldsmith.yamlfile import load_yaml


@dataclass(frozen=True)
class Role:
    """promise: the first line of the docstring. packages: apt packages every image with this role needs."""

    name: str
    path: Path
    promise: str
    packages: tuple[str, ...]

    def desired(self, node: Node, lock: Lock) -> Iterator[Resource]:
        """What this role promises for the node. A GoldsmithError names the role."""
        function = self._function("desired", "desired")
        try:
            found = list(function(node, lock)) if function else []
        except GoldsmithError as error:
            where = error.where or f"role {self.name}, node {node.name}"
            raise GoldsmithError(error.what, where=where, hint=error.hint) from error
        except Exception as error:
            raise _broken(error, self.path / "desired.py", f"node {node.name}") from error
        for one in found:
            if not isinstance(one, Resource):
                raise GoldsmithError(
                    f"yields {one!r}, which is no resource", where=str(self.path / "desired.py"),
                    hint="yield File(…), Unit(…), Sysctl(…) and the like",
                )  # fmt: skip
        yield from found

    def check(self, node: Node, lock: Lock, facts: Mapping[str, Any]) -> Iterator[Finding]:
        """What the role makes of its own probe's facts."""
        function = self._function("checks", "check")
        if function:
            yield from function(node, lock, facts)

    def lint(self, image: Image, lock: Lock | None) -> Iterator[Hit]:
        """What the role makes of an image that has it, before anything is built. lock: None if there is none that
        fits. A GoldsmithError names the role's file."""
        function = self._function("lint", "lint")
        try:
            found = list(function(image, lock)) if function else []
        except GoldsmithError:
            raise
        except Exception as error:
            raise _broken(error, self.path / "lint.py", f"image {image.name}") from error
        known = self.rules()
        for one in found:
            if not isinstance(one, Hit) or one.rule not in known:
                raise GoldsmithError(
                    f"yields {one!r}", where=str(self.path / "lint.py"),
                    hint="yield RULE.hit(…) of a rule that is in RULES",
                )  # fmt: skip
        yield from found

    def rules(self) -> tuple[Rule, ...]:
        """RULES of lint.py: what lint() can say."""
        if not (self.path / "lint.py").is_file():
            return ()
        rules = getattr(_import(f"roles.{self.name}.lint", self.path.parent.parent), "RULES", None)
        if not isinstance(rules, tuple) or not all(isinstance(one, Rule) for one in rules):
            raise GoldsmithError("RULES must be a tuple of Rule", where=str(self.path / "lint.py"))
        return rules

    def deploy(self, node: Node, lock: Lock) -> None:
        """Calls pyinfra operations for what data can't say. Does nothing for most roles."""
        function = self._function("deploy", "deploy")
        if function:
            function(node, lock)

    def probe_source(self) -> str | None:
        """The text of probe.py, to be shipped to nodes."""
        path = self.path / "probe.py"
        try:
            return path.read_text() if path.is_file() else None
        except (OSError, UnicodeDecodeError) as error:
            raise GoldsmithError(f"can't be read: {error}", where=str(path)) from None

    def argument_spec(self) -> dict[str, Any]:
        """The options of meta/argument_specs.yml, variable → Ansible's description of it."""
        options: Any = self._yaml("meta/argument_specs.yml")
        path = self.path / "meta/argument_specs.yml"
        for key in ("argument_specs", "main", "options") if options else ():
            options = options.get(key) if isinstance(options, dict) else None
        options = {} if options is None else options
        if not isinstance(options, dict) or not all(isinstance(one, dict) for one in options.values()):
            raise GoldsmithError(
                "isn't an argument spec: argument_specs.main.options must map each variable to its description",
                where=str(path),
            )
        return options

    def defaults(self) -> dict[str, Any]:
        return self._yaml("defaults/main.yml")

    def _yaml(self, name: str) -> dict[str, Any]:
        path = self.path / name
        if not path.is_file():
            return {}
        data = load_yaml(path)
        if data is not None and not isinstance(data, dict):
            raise GoldsmithError("must be a mapping", where=str(path))
        return dict(data or {})

    def _function(self, module: str, name: str) -> Callable[..., Any] | None:
        if not (self.path / f"{module}.py").is_file():
            return None
        loaded = _import(f"roles.{self.name}.{module}", self.path.parent.parent)
        function = getattr(loaded, name, None)
        if not callable(function):
            raise GoldsmithError(f"has no function {name}()", where=str(self.path / f"{module}.py"))
        return function  # type: ignore[no-any-return]


def _import(name: str, project: Path) -> ModuleType:
    """Import roles.X from the project, which may be another than the one goldsmith itself is installed from."""
    if str(project) not in sys.path:
        sys.path.insert(0, str(project))
    # roles/ is a namespace package: a second project (a test's) has to be seen too
    importlib.invalidate_caches()
    roles = importlib.import_module("roles")
    if str(project / "roles") not in list(roles.__path__):
        raise GoldsmithError(
            "roles of another project are already loaded", where=str(project), hint="one project a process"
        )
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _broken(error, project / (name.replace(".", "/") + ".py"), "while it is loaded") from error


def _broken(error: Exception, path: Path, when: str) -> GoldsmithError:
    """A role's own mistake, with the line of the role that it happened at: no traceback for its author to read."""
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if Path(frame.filename) == path), None)
    if isinstance(error, SyntaxError):
        line = error.lineno
    where = f"{path}:{line}" if line else str(path)
    return GoldsmithError(f"{type(error).__name__}: {error}", where=f"{where}, {when}")


@cache
def find_roles(project: Path) -> dict[str, Role]:
    """name → role, of every folder below roles/ with an __init__.py."""
    return {
        path.parent.name: _load(path.parent)
        for path in sorted((project / "roles").glob("*/__init__.py"))
    }  # fmt: skip


def _load(path: Path) -> Role:
    module = _import(f"roles.{path.name}", path.parent.parent)
    promise = (module.__doc__ or "").strip()
    if not promise:
        raise GoldsmithError("a role says its promise in a docstring", where=str(path / "__init__.py"))
    packages = getattr(module, "PACKAGES", ())
    if not isinstance(packages, (tuple, list)) or not all(isinstance(one, str) for one in packages):
        raise GoldsmithError("PACKAGES must be a tuple of package names", where=str(path / "__init__.py"))
    return Role(path.name, path, promise.splitlines()[0], tuple(packages))


def roles_of(names: Iterable[str], project: Path, where: str | Callable[[int], str]) -> list[Role]:
    """The roles by name, in this order. `where`, for the error, names the file that asked, or gives the place of the
    n-th name: `lambda n: places.of("roles", n)`."""
    known = find_roles(project)
    found = []
    for number, name in enumerate(names):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"roles here: {', '.join(known)}"
            place = f"{where}, roles" if isinstance(where, str) else where(number)
            raise GoldsmithError(f"there is no role {short(name)}", where=place, hint=hint)
        found.append(known[name])
    return found
