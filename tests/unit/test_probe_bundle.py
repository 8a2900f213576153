"""The bundle on this machine, for real: deadlines, crashes, floods and garbage of one part harm only itself."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from goldsmith import GoldsmithError
from goldsmith.probe.bundle import CORE, NODE, bundle, part_name
from goldsmith.role import Role, find_roles

PROJECT = Path(__file__).parents[2]
SHIPPED = [path for path in sorted(NODE.glob("*.py")) if path.name != "__init__.py"]
SHIPPED += sorted((PROJECT / "roles").glob("*/probe.py"))


def fake_role(folder: Path, name: str, source: str) -> Role:
    path = folder / name
    path.mkdir()
    (path / "probe.py").write_text(source)
    return Role(name, path, "a fake", ())


def answer(roles: list[Role], want: dict[str, Any], python: str = sys.executable) -> dict[str, Any]:
    done = subprocess.run(
        [python, "-I", "-S", "-B", "-"], input=bundle(roles, want), capture_output=True, text=True, timeout=30
    )
    document = json.loads(done.stdout.strip().splitlines()[-1])
    assert document["schema"] == 1
    return dict(document)


def only(*names: str) -> dict[str, Any]:
    return {"target": "live", "parts": [part_name(name) for name in names]}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_shipped_files_are_python_3_8_and_import_the_standard_library_alone(path: Path) -> None:
    tree = ast.parse(path.read_text(), str(path), feature_version=(3, 8))
    checked_only = [
        node for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING" for node in ast.walk(block)
    ]  # fmt: skip
    for node in ast.walk(tree):
        if node in checked_only:
            continue
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names, name


def test_every_core_part_has_its_function() -> None:
    for file, function, _where in CORE.values():
        tree = ast.parse((NODE / file).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_a_whole_probe_answers_quickly_and_writes_nothing(tmp_path: Path) -> None:
    started = time.monotonic()
    document = answer(list(find_roles(PROJECT).values()), {"target": "image", "files": {"/etc/hostname": None}})
    assert time.monotonic() - started < 5
    assert document["parts"]["os"]["facts"]["id"]
    assert document["parts"]["files"]["facts"]["/etc/hostname"]["type"] in ("file", "link")
    # an image has no running kernel or systemd
    assert not {"sysctls", "modules", "failed_units"} & set(document["parts"])
    assert {part_name(name) for name in ("base", "nccl", "pytorch")} <= set(document["parts"])


def test_a_crash_is_that_parts_error(tmp_path: Path) -> None:
    roles = [
        fake_role(tmp_path, "good", "def probe(run): return {'one': 1}\n"),
        fake_role(tmp_path, "bad", "def probe(run):\n    return {}['missing']\n"),
        fake_role(tmp_path, "gone", "import os\ndef probe(run): os.kill(os.getpid(), 11)\n"),
        fake_role(tmp_path, "left", "import os\ndef probe(run): os._exit(3)\n"),
        fake_role(tmp_path, "odd", "def probe(run): return {'a': object()}\n"),
    ]
    parts = answer(roles, only("good", "bad", "gone", "left", "odd"))["parts"]
    assert parts[part_name("good")]["facts"] == {"one": 1}
    assert parts[part_name("bad")]["error"] == "KeyError: 'missing' (bad/probe.py:2)"
    assert "signal 11" in parts[part_name("gone")]["error"]
    assert "exit code 3" in parts[part_name("left")]["error"]
    assert "JSON" in parts[part_name("odd")]["error"]


def test_past_its_deadline_a_part_is_killed_with_all_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    source = (
        "import os, subprocess, time\nDEADLINE = 0.4\n"
        "def probe(run):\n"
        "    if not os.fork():\n        time.sleep(60)\n"  # a fork that holds the pipe
        f"    log = open({str(pids)!r}, 'a')\n"
        "    log.write('%d\\n' % os.getpid()); log.flush()\n"
        # a command has a process group of its own, and is found by its session
        f"    run(['sh', '-c', 'echo $$ >> {pids}; sleep 60 & echo $! >> {pids}; wait'], timeout=50)\n"
    )
    started = time.monotonic()
    document = answer([fake_role(tmp_path, "slow", source)], only("slow"))
    assert time.monotonic() - started < 3
    assert document["parts"][part_name("slow")]["error"] == "no answer within 0.4 s, killed"
    written = [int(line) for line in pids.read_text().split()]
    assert len(written) == 3
    time.sleep(0.1)
    for pid in written:
        assert not running(pid), pid


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"  # a zombie awaits its new parent


def test_garbage_on_stdout_and_stdin_is_nobodys(tmp_path: Path) -> None:
    source = (
        "import os, sys\n"
        "def probe(run):\n"
        "    print('garbage'); os.write(1, b'{\"schema\": 9}\\n'); os.system('echo more; echo less >&2')\n"
        "    return {'stdin': sys.stdin.read(), 'name': os.fsdecode(b'\\xff'), 'nul': '\\0'}\n"
    )
    facts = answer([fake_role(tmp_path, "loud", source)], only("loud"))["parts"][part_name("loud")]["facts"]
    assert facts == {"stdin": "", "name": "?", "nul": "\0"}


def test_a_flood_is_cut(tmp_path: Path) -> None:
    role = fake_role(tmp_path, "flood", "def probe(run): return {'a': 'x' * (20 << 20)}\n")
    assert "MiB" in answer([role], only("flood"))["parts"][part_name("flood")]["error"]


def test_commands_time_out_and_may_be_missing(tmp_path: Path) -> None:
    source = (
        "def probe(run):\n"
        "    return [run(['sleep', '9'], timeout=0.1)[0], run(['no-such-program'])[0], run(['false'])[0],\n"
        "            run(['sh', '-c', 'echo $LC_ALL $TZ']).out]\n"
    )
    facts = answer([fake_role(tmp_path, "cmd", source)], only("cmd"))["parts"][part_name("cmd")]["facts"]
    assert facts == [124, 127, 1, "C UTC\n"]


def test_each_role_sees_its_own_variables(tmp_path: Path) -> None:
    roles = [fake_role(tmp_path, name, "def probe(run): return run.variables\n") for name in ("one", "two")]
    parts = answer(roles, {**only("one", "two"), "variables": {"one": {"one_x": 1}}})["parts"]
    assert parts[part_name("one")]["facts"] == {"one_x": 1}
    assert parts[part_name("two")]["facts"] == {}


def test_a_role_may_be_called_as_a_core_part(tmp_path: Path) -> None:
    role = fake_role(tmp_path, "kernel", "def probe(run): return {'mine': True}\n")
    parts = answer([role], {"target": "live"})["parts"]
    assert parts[part_name("kernel")]["facts"] == {"mine": True}
    assert "running" in parts["kernel"]["facts"]


def test_told_to_end_the_probe_takes_its_children_along(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    source = (
        f"import os, time\ndef probe(run):\n    open({str(pids)!r}, 'w').write(str(os.getpid()))\n    time.sleep(60)\n"
    )
    script = bundle([fake_role(tmp_path, "slow", source)], only("slow"))
    with subprocess.Popen([sys.executable, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        process.stdin.write(script)
        process.stdin.close()
        for _ in range(100):
            if pids.exists() and pids.read_text():
                break
            time.sleep(0.05)
        process.terminate()
        process.wait(timeout=5)
    time.sleep(0.1)
    assert not running(int(pids.read_text()))


@pytest.mark.parametrize("line", ["DEADLINE = 'x'", "DEADLINE = True", "DEADLINE = 1e9", "DEADLINE = 2 * 3"])
def test_a_deadline_is_a_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(GoldsmithError, match=r"probe\.py:1"):
        bundle([fake_role(tmp_path, "a", f"{line}\ndef probe(run): return {{}}\n")], {})


def test_newer_syntax_is_refused_before_it_is_shipped(tmp_path: Path) -> None:
    with pytest.raises(GoldsmithError, match=r"3\.8"):
        bundle([fake_role(tmp_path, "a", "match 1:\n    case 1: pass\n")], {})


def test_an_old_python_says_so_in_json() -> None:
    script = bundle([], {}).replace("sys.version_info < (3, 8)", "sys.version_info < (99, 0)")
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True)
    assert "needs 3.8" in json.loads(done.stdout)["error"]
