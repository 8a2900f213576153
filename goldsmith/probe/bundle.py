"""One self-contained script of the probe's core and the roles' probe.py, for `python3 -I -S -` on stdin."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from goldsmith.errors import GoldsmithError
from goldsmith.role import Role

NODE = Path(__file__).parent / "node"
# What runs the script, from its stdin. Debian's and Ubuntu's own Python, not whatever is first in PATH: a pyenv in
# root's .bashrc cost 20 seconds an exec (docs/measured.md). Isolated, without site-packages.
PYTHON = ("/usr/bin/python3", "-I", "-S", "-")
DEADLINE = 5.0  # seconds a part has, unless its probe.py sets DEADLINE (or DEEP_DEADLINE, for a deep probe)
LONGEST = 300.0
# part → file, function, where it applies: `always`, `live` (a booted system), `kernel` (with its own kernel)
CORE = {
    "os": ("system.py", "os_facts", "always"),
    "kernel": ("system.py", "kernel_facts", "always"),
    "packages": ("packages.py", "package_facts", "always"),
    "candidates": ("candidates.py", "candidate_facts", "always"),
    "files": ("files.py", "file_facts", "always"),
    "stale_files": ("files.py", "stale_facts", "always"),
    "units": ("units.py", "unit_facts", "always"),
    "failed_units": ("units.py", "failed_units", "live"),
    "sysctls": ("system.py", "sysctl_facts", "live"),
    "modules": ("system.py", "module_facts", "kernel"),
    "package_files": ("files.py", "package_file_facts", "always"),
    "environments": ("environments.py", "environment_facts", "always"),
}
# Core parts that take longer: seconds for them, and in a deep probe, which hashes gigabytes.
SLOW = {"package_files": (DEADLINE, 60.0), "environments": (20.0, 150.0)}
# Python 2 or 3.5 must still get as far as the sentence that refuses it: no syntax newer than that here.
SCRIPT = """\
import sys
sys.dont_write_bytecode = True
import json
if sys.version_info < (3, 8):
    error = "python3 is %d.%d, the probe needs 3.8" % sys.version_info[:2]
    print(json.dumps({{"schema": 1, "parts": {{}}, "error": error}}))
    sys.exit(0)
bundle = json.loads({bundle!r})
names = {{"__name__": "goldsmith_probe"}}
for name in bundle["runtime"]:
    exec(compile(bundle["sources"][name], name, "exec"), names)
names["main"](bundle)
"""


def part_name(role: str) -> str:
    """The name of a role's part in the document; core parts have plain names (both have a `kernel`)."""
    return f"role.{role}"


def expected_parts(roles: Iterable[Role], target: str, *, container: bool) -> list[str]:
    """The parts that a whole probe answers with, each with facts or with an error."""
    applies = {"always"} | ({"live"} if target == "live" else set())
    applies |= {"kernel"} if target == "live" and not container else set()
    core = [name for name, (_, _, where) in CORE.items() if where in applies]
    return [*core, *(part_name(role.name) for role in roles if role.probe_source() is not None)]


def bundle(roles: Iterable[Role], want: Mapping[str, Any]) -> str:
    """The script. It prints one JSON document as the last line of its stdout, whatever happens on the node.

    want, each key may be missing: `target` (live or image), `deep`, `parts` (names: run these alone), `patience` (what
    every deadline is multiplied by), `variables` (role → its variables), and what to look at: `files` (path → expected
    sha256 or null), `secret_files` (paths), `units`, `sysctls`, `modules` (names), `pinned` (package → version,
    source), `environments` (name → digest), `package_files` and, of those, `hash_always` (paths).
    Raises GoldsmithError for a probe.py that isn't Python 3.8, or
    whose DEADLINE isn't a number.
    """
    deep = bool(want.get("deep"))
    sources = {path.name: path.read_text() for path in sorted(NODE.glob("*.py")) if path.name != "__init__.py"}
    parts = [
        {"name": name, "file": file, "function": function, "where": where,
         "deadline": SLOW.get(name, (DEADLINE, DEADLINE))[deep]}
        for name, (file, function, where) in CORE.items()
    ]  # fmt: skip
    for role in roles:
        source = role.probe_source()
        if source is not None:
            path = role.path / "probe.py"
            parts.append({
                "name": part_name(role.name), "role": role.name, "file": f"{role.name}/probe.py",
                "function": "probe", "where": "always", "deadline": deadline(source, path, deep),
            })  # fmt: skip
            sources[f"{role.name}/probe.py"] = source
    content = {"want": dict(want), "parts": parts, "runtime": ["run.py", "runtime.py"], "sources": sources}
    return SCRIPT.format(bundle=json.dumps(content))


def deadline(source: str, path: Path, deep: bool) -> float:
    """The seconds a probe.py asks for: DEEP_DEADLINE in a deep probe, or else DEADLINE, or else ours."""
    try:
        tree = ast.parse(source, str(path), feature_version=(3, 8))
    except SyntaxError as error:
        raise GoldsmithError(
            f"not Python 3.8: {error.msg}",
            where=f"{path}:{error.lineno}",
            hint="it runs on nodes with python3 >= 3.8",
        ) from None
    found = {
        target.id: statement
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    statement = (found.get("DEEP_DEADLINE") if deep else None) or found.get("DEADLINE")
    if statement is None:
        return DEADLINE
    value = statement.value.value if isinstance(statement.value, ast.Constant) else None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= LONGEST:
        raise GoldsmithError(f"a deadline is a number of seconds up to {LONGEST:g}", where=f"{path}:{statement.lineno}")
    return float(value)
