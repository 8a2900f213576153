"""The small tools that everything stands on: processes, atomic writes, holding, new roles, the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from goldsmith import GoldsmithError, atomic
from goldsmith.holding import holding
from goldsmith.new_role import add_to_roles, new_role
from goldsmith.process import run

PROJECT = Path(__file__).parents[2]


def test_a_timed_out_child_takes_its_children_along(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid}; wait"
    started = time.monotonic()
    with pytest.raises(GoldsmithError, match=r"didn't end within 0.5 s"):
        run(["sh", "-c", script], timeout=0.5, what="a test")
    assert time.monotonic() - started < 10
    with pytest.raises(ProcessLookupError):
        for _ in range(50):
            os.kill(int(pid.read_text()), 0)
            time.sleep(0.1)


def test_a_streaming_child_is_killed_too() -> None:
    lines: list[str] = []
    with pytest.raises(GoldsmithError, match="didn't end"):
        run(["sh", "-c", "echo one; sleep 60"], timeout=0.5, what="a test", on_line=lines.append)
    assert lines == ["one"]


def test_errors_say_what_the_program_said() -> None:
    with pytest.raises(GoldsmithError, match=r"exit code 3:\n  the reason"):
        run(["sh", "-c", "echo the reason >&2; exit 3"], timeout=5, what="a test")
    with pytest.raises(GoldsmithError, match="no-such-program isn't installed"):
        run(["no-such-program"], timeout=5, what="a test", hint="install it")
    done = run(["sh", "-c", "cat; exit 1"], timeout=5, what="a test", check=False, stdin="in")
    assert (done.code, done.out) == (1, "in")


def test_atomic_writes_are_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a/lock"
    atomic.write(path, "old", mode=0o600)
    with pytest.raises(RuntimeError), atomic.replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and os.listdir(path.parent) == ["lock"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_held_lock_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock"
    with (
        holding(path, "lab x"),
        pytest.raises(GoldsmithError, match=f"lab x is in use by process {os.getpid()}"),
        holding(path, "lab x"),
    ):
        pass
    with holding(path, "lab x"):
        assert "since" in path.read_text()  # free again, and held by us


def test_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock"
    code = (
        "import sys, time; from pathlib import Path; from goldsmith.holding import holding\n"
        "with holding(Path(sys.argv[1]), 'x'):\n print('held', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True, cwd=PROJECT)
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    with pytest.raises(GoldsmithError, match="in use"), holding(path, "x"):
        pass
    child.send_signal(signal.SIGKILL)
    child.wait()
    with holding(path, "x"):
        pass


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("roles: [a, b]  # c\nx: 1\n", "roles: [a, b, new]  # c\nx: 1\n"),
        (
            "roles:\n  - a\n  # why b\n  - b  # it is\n\nx: 1\n",
            "roles:\n  - a\n  # why b\n  - b  # it is\n  - new\n\nx: 1\n",
        ),
        ("x: 1\nroles:\n- a", "x: 1\nroles:\n- a\n- new\n"),
    ],
)
def test_a_role_is_added_to_an_image_and_comments_stay(before: str, after: str) -> None:
    assert add_to_roles(before, "new", "image.yml") == after


def project(tmp_path: Path) -> Path:
    (tmp_path / "roles").mkdir()
    (tmp_path / "images/small").mkdir(parents=True)
    (tmp_path / "images/small/image.yml").write_text(
        "schema: 1\nname: small\nbase: {distribution: debian, release: trixie, suites: [trixie], packages: [python3]}\n"
        "roles:\n  - other\n"
    )
    return tmp_path


def test_new_role(tmp_path: Path) -> None:
    where = project(tmp_path)
    files = new_role(where, "motd", "small")
    assert (
        where / "roles/motd/templates/motd.conf.j2"
    ).read_text() == '{{ header }}message={{ node["motd_message"] }}\n'
    assert where / "images/small/image.yml" in files
    assert "  - other\n  - motd\n" in (where / "images/small/image.yml").read_text()
    assert sorted(os.listdir(where / "roles")) == ["motd"]
    for name, says in (("motd", "such a role already"), ("Motd", "can't be a role's name"), ("../x", "can't be")):
        with pytest.raises(GoldsmithError, match=says):
            new_role(where, name, None)
    with pytest.raises(GoldsmithError, match="no image here"):
        new_role(where, "other", "nope")
    assert sorted(os.listdir(where / "roles")) == ["motd"], "something half made was left"


def test_a_new_role_passes_the_linters(tmp_path: Path) -> None:
    """`make new-role` and then `make test`: what was laid down is as clean as the rest."""
    where = project(tmp_path)
    new_role(where, "a_new_one", None)
    config = f"--config-file={PROJECT / 'pyproject.toml'}"
    for command in (
        ["ruff", "check", "--config", str(PROJECT / "pyproject.toml")],
        ["ruff", "format", "--check", "--config", str(PROJECT / "pyproject.toml")],
        ["mypy", config, "--namespace-packages"],
    ):
        environment = {**os.environ, "MYPYPATH": str(PROJECT)}
        argv = [sys.executable, "-m", *command, str(where / "roles/a_new_one")]
        done = subprocess.run(argv, cwd=where, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def goldsmith(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "goldsmith", *words]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("adit",), "did you mean audit?"),
        (("nccl", "parse", "x"), "isn't built yet"),
        (("validate", "inventories/lab"), "isn't built yet"),
        (("audit",), "Missing argument 'SITE'"),
        (("audit", "inventories/nope"), "inventories beside it: lab"),
        (("audit", "inventories/lab", "--limit", "node[01-"), "not a node set"),
        (("audit", "inventories/lab", "--saved", "/nonexistent"), "no such folder"),
        (("deploy", "inventories/lab", "--limit", "nodex"), "did you mean nodes"),
        (("lock", "images/nope"), "h200-ubuntu2404, lab"),
        (("probe",), "say which node"),
        (("new-role", "X"), "can't be a role's name"),
    ],
)
def test_mistakes_are_told_without_a_traceback(words: tuple[str, ...], says: str) -> None:
    done = goldsmith(*words)
    assert done.returncode == 4, done.stderr
    assert says in done.stderr and "Traceback" not in done.stderr


def test_help() -> None:
    done = goldsmith("--help")
    assert done.returncode == 0
    for verb in ("audit", "build", "deploy", "lab", "lock", "new-role", "pool", "probe"):
        assert verb in done.stdout
        assert goldsmith(verb, "--help").returncode == 0


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m goldsmith probe --local --script | head -c 10"
    done = subprocess.run(["sh", "-c", command], cwd=PROJECT, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
