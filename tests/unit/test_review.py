"""Faults that a review found, each with the test that would have found it."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from goldsmith import GoldsmithError, Node, atomic
from goldsmith.converge.connectors.ssh import said_plainly
from goldsmith.converge.run import read_result
from goldsmith.fleet import ssh as fleet
from goldsmith.inventory.site import Site, mask
from goldsmith.model.node import Ssh
from goldsmith.plan import public
from goldsmith.role import find_roles

from .test_inventory import project

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize("limit", ["", " ", "node01!node01", "node01&node02", "@gpu", "node0*"])
def test_a_limit_that_selects_nothing_is_not_all_nodes(tmp_path: Path, limit: str) -> None:
    with pytest.raises(GoldsmithError):
        Site(project(tmp_path)).select(limit)


def test_all_is_all(tmp_path: Path) -> None:
    site = Site(project(tmp_path))
    assert site.select("all") == site.names


def test_work_on_a_node_that_was_not_asked_for_is_an_error() -> None:
    """A site dc1.eu was deployed with dc1.py; with_suffix had eaten the rest."""
    operation = {"name": "x", "success": ["other01"], "error": [], "no_change": []}
    data = {"plan": [], "results": [operation], "failed": [], "said": {}, "code": 0}
    with pytest.raises(GoldsmithError, match="other01, which was not asked for"):
        read_result(data, ["node01"], check=False)


def test_a_device_is_never_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "null"
    os.mkfifo(fifo)
    with pytest.raises(GoldsmithError, match="no regular file"):
        atomic.write(fifo, "x")
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("desired.py", "def desired(node, lock):\n    yield Fil('/x')\n", r"desired.py:2, node .*NameError"),
        ("desired.py", "def desired(node, lock):\n    yield '/x'\n", "yields '/x', which is no resource"),
        ("desired.py", "def desired(node, lock):\n    return None\n", "TypeError"),
        ("desired.py", "oops\n", r"desired.py:1, while it is loaded: NameError"),
        ("desired.py", "def desired(:\n", r"desired.py:1, while it is loaded: SyntaxError"),
        ("__init__.py", '"""A role."""\nPACKAGES = 5\n', "PACKAGES must be a tuple"),
        ("meta/argument_specs.yml", "argument_specs: {main: {options: [x]}}\n", "isn't an argument spec"),
        ("meta/argument_specs.yml", "argument_specs: {main: {options: {x: null}}}\n", "isn't an argument spec"),
        ("defaults/main.yml", "x: 1\nx: 2\n", r"main.yml:2: not valid YAML: x stands here for the second time"),
        ("defaults/main.yml", b"\xff\xfe\x00", "can't be read"),
    ],
)
def test_a_role_authors_mistake_is_a_sentence(tmp_path: Path, file: str, text: str | bytes, says: str) -> None:
    """In a process of its own: roles are Python modules, and stay loaded."""
    role = tmp_path / "roles/broken"
    (role / file).parent.mkdir(parents=True)
    if file != "__init__.py":
        (role / "__init__.py").write_text('"""A role."""\n')
    (role / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    code = (
        "import sys; from pathlib import Path; from goldsmith.role import find_roles; from goldsmith import *\n"
        "role = find_roles(Path(sys.argv[1]))['broken']; role.defaults(); role.argument_spec()\n"
        "list(role.desired(Node('n', 'i'), None))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, timeout=60)

    last = done.stderr.strip().split("goldsmith.errors.GoldsmithError: ")[-1]
    assert re.search(says, last), done.stderr


def test_secrets_stay_out_of_errors_and_probes() -> None:
    spec = {"token": {"type": "int", "no_log": True}, "sub": {"options": {"key": {"no_log": True}, "name": {}}}}
    values = {"token": "hunter2", "sub": {"key": "hunter3", "name": "x"}}
    assert mask("hunter2 and hunter3 cannot be", spec, values) == "(not shown) and (not shown) cannot be"
    assert public(spec, values) == {"sub": {"name": "x"}}


def test_a_lock_that_no_longer_fits_is_refused(tmp_path: Path) -> None:
    from goldsmith.plan import plan_node

    from .make import lock

    site = Site(project(tmp_path))
    made = lock().model_copy(update={"image": "small"})
    (tmp_path / "images/small/image.lock").write_text(made.to_text())
    with pytest.raises(GoldsmithError, match="lock it again: goldsmith lock images/small"):
        plan_node(site, "node01")


def test_connection_errors_are_sentences() -> None:
    ssh = Ssh("10.0.0.1", known_hosts="/k")
    assert "sshd running?" in said_plainly("Could not connect ([Errno None] Unable to connect to port 22 on x)", ssh)
    assert "isn't in /k" in said_plainly("SSH error (StrictPolicy: No host key for x found in known_hosts)", ssh)
    assert said_plainly("something new", ssh) == "something new"


@asynccontextmanager
async def server(tmp_path: Path, text: str) -> AsyncIterator[Node]:
    """An sshd on loopback that answers every command with `text`, forever or once."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(tmp_path / "key")

    async def answer(process: asyncssh.SSHServerProcess[str]) -> None:
        try:
            while len(text) > 1000:
                process.stdout.write(text)
                await process.stdout.drain()
            process.stdout.write(text)
            process.exit(0)
        except (BrokenPipeError, ConnectionError):
            pass

    (tmp_path / "authorized").write_text(key.export_public_key().decode())
    listening = await asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[key], authorized_client_keys=str(tmp_path / "authorized"),
        process_factory=answer,
    )  # fmt: skip
    port = listening.get_port()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {key.export_public_key().decode()}")
    ssh = Ssh("127.0.0.1", port, "root", str(tmp_path / "key"), str(tmp_path / "known"))
    yield Node("node01", "lab", ssh=ssh)
    listening.close()


def ask(tmp_path: Path, text: str) -> str:
    async def once() -> str:
        async with server(tmp_path, text) as node:
            [answer] = await fleet._all([node], lambda _: "script", 20.0, lambda _: None)
            return answer.reason

    return asyncio.run(once())


def test_a_flooding_node_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "LARGEST_ANSWER", 1 << 20)
    assert "more than 1 MiB" in ask(tmp_path, "x" * 65536)


def test_rubbish_from_a_node_is_named(tmp_path: Path) -> None:
    assert "isn't JSON: 'welcome'" in ask(tmp_path, "welcome")


def test_every_role_of_ours_says_its_promise() -> None:
    assert all(role.promise for role in find_roles(PROJECT).values())


@pytest.mark.parametrize("kind", ["file", "folder", "link", "dangling", "absent"])
def test_whatever_is_in_a_files_place_is_kept_and_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The real shell line: a directory in a managed file's place was a finding that no deploy could heal."""
    from goldsmith.converge.operations import files

    monkeypatch.setattr(files, "BACKUPS", str(tmp_path / "backups"))
    path = tmp_path / "etc/x.conf"
    path.parent.mkdir()
    if kind == "file":
        path.write_text("mine")
    elif kind == "folder":
        (path / "inside").mkdir(parents=True)
    elif kind != "absent":
        path.symlink_to("/etc/hostname" if kind == "link" else "/nowhere")
    line = files.back_up(str(path), "T").get_raw_value()  # type: ignore[attr-defined]
    subprocess.run(["sh", "-c", line], check=True, timeout=30)
    backup = Path(f"{tmp_path}/backups{path}.T")
    assert (backup.exists() or backup.is_symlink()) == (kind != "absent")
    assert path.is_dir() is False
