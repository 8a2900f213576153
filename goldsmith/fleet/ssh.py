"""Probes over asyncssh: all nodes at once, each with a deadline of its own, so that a dead node delays nobody."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import asyncssh

from goldsmith.errors import GoldsmithError
from goldsmith.fleet.answer import Answer
from goldsmith.model.node import Node, Ssh
from goldsmith.model.probe import parse_probe
from goldsmith.probe.bundle import PYTHON

# Connections under way at once; sshd and our own key exchange are what limits (docs/measured.md).
FANOUT = 200
CONNECT_SECONDS = 10.0
LARGEST_ANSWER = 32 * 1024 * 1024

Script = Callable[[Node], str]


def probe_nodes(
    nodes: Iterable[Node], script: Script, *, deadline: float = 30.0, told: Callable[[Answer], None] | None = None
) -> list[Answer]:
    """Ask every node. deadline: seconds a node has for everything, the connection included.

    script: makes the probe for a node (its managed files differ from its neighbour's). told: called with each
    answer as it comes. Returns the answers in the nodes' order; never raises for a node.
    """
    return asyncio.run(_all(list(nodes), script, deadline, told or (lambda _: None)))


async def _all(nodes: list[Node], script: Script, deadline: float, told: Callable[[Answer], None]) -> list[Answer]:
    slots = asyncio.Semaphore(FANOUT)
    # read once, not once a node: a site's known_hosts has thousands of lines
    shared = _Shared()

    async def one(node: Node) -> Answer:
        async with slots:
            answer = await _ask(node, script, deadline, shared)
        told(answer)
        return answer

    return await asyncio.gather(*map(one, nodes))


class _Shared:
    """Keys and host keys by path, loaded when first asked for."""

    def __init__(self) -> None:
        self._known: dict[str, asyncssh.SSHKnownHosts] = {}
        self._keys: dict[str, asyncssh.SSHKey] = {}

    def known_hosts(self, path: str) -> asyncssh.SSHKnownHosts:
        if path not in self._known:
            self._known[path] = asyncssh.read_known_hosts(path)
        return self._known[path]

    def key(self, path: str) -> asyncssh.SSHKey:
        if path not in self._keys:
            self._keys[path] = asyncssh.read_private_key(path)
        return self._keys[path]


async def _ask(node: Node, script: Script, deadline: float, shared: _Shared) -> Answer:
    started = time.monotonic()
    try:
        async with asyncio.timeout(deadline):
            return await _converse(node, script(node), shared)
    except TimeoutError:
        if time.monotonic() - started < deadline - 0.5:
            reason = f"no connection within {CONNECT_SECONDS:g} s"
            return Answer(node.name, reason=reason, remedy="is the node switched on, and its sshd not hung?")
        return Answer(node.name, reason=f"no answer within {deadline:g} s", remedy="is the node overloaded or hung?")
    except GoldsmithError as error:
        return Answer(node.name, reason=error.what, remedy=error.hint)
    except Exception as error:
        return Answer(node.name, reason=_reason(error), remedy=_remedy(error, node))


async def _converse(node: Node, script: str, shared: _Shared) -> Answer:
    ssh = node.ssh
    if ssh is None:
        return Answer(node.name, reason="the inventory gives no address")
    async with asyncssh.connect(
        ssh.address,
        ssh.port,
        username=ssh.user,
        client_keys=[shared.key(ssh.key_file)] if ssh.key_file else (),
        known_hosts=shared.known_hosts(ssh.known_hosts or str(Path("~/.ssh/known_hosts").expanduser())),
        connect_timeout=CONNECT_SECONDS,
        login_timeout=CONNECT_SECONDS,
        **({} if not ssh.key_file else {"agent_path": None, "config": None}),
    ) as connection:
        process: asyncssh.SSHClientProcess[bytes] = await connection.create_process(command(ssh), encoding=None)
        with contextlib.suppress(OSError):  # it has ended already: what it said tells why
            process.stdin.write(script.encode())
            process.stdin.write_eof()
        out, err = await _outputs(process)
        if len(out) > LARGEST_ANSWER or len(err) > LARGEST_ANSWER:
            return Answer(node.name, reason=f"it answers with more than {LARGEST_ANSWER >> 20} MiB", remedy=_LOOK)
        await process.wait_closed()
        status = process.exit_status
    if status != 0:
        reason = exit_reason(status, err.decode(errors="replace"))
        return Answer(node.name, reason=reason, remedy=exit_remedy(status))
    return Answer(node.name, probe=parse_probe(node.name, out.decode(errors="replace")))


_LOOK = "look at what its root login and its /usr/bin/python3 do"


async def _outputs(process: asyncssh.SSHClientProcess[bytes]) -> tuple[bytes, bytes]:
    """stdout and stderr, to their ends; or, as soon as one of them has become too large, what there is."""
    readers = [asyncio.create_task(_read(stream)) for stream in (process.stdout, process.stderr)]
    pending = set(readers)
    try:
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if any(len(one.result()) > LARGEST_ANSWER for one in done):
                break
    finally:
        for one in pending:
            one.cancel()
    out, err = (one.result() if one.done() and not one.cancelled() else b"" for one in readers)
    return out, err


async def _read(stream: asyncssh.SSHReader[bytes]) -> bytes:
    """The stream to its end, or a little more than LARGEST_ANSWER: a flooding node must not fill our memory."""
    found = bytearray()
    while len(found) <= LARGEST_ANSWER and (more := await stream.read(65536)):
        found += more
    return bytes(found)


def command(ssh: Ssh) -> str:
    """What runs on the node; sudo must not ask."""
    return " ".join(("sudo", "-n", *PYTHON) if ssh.become else PYTHON)


def exit_reason(status: int | None, err: str) -> str:
    """Why the probe's program ended badly, in a line."""
    last = err.strip().splitlines()[-1] if err.strip() else ""
    if status == 127 or "not found" in last:
        return f"the node has no /usr/bin/python3 ({last or 'exit code 127'})"
    if status is None:
        return "the connection was lost while the probe ran"
    return f"the probe failed with exit code {status}: {last or 'it said nothing'}"


def exit_remedy(status: int | None) -> str:
    return "install it on the node: apt-get update && apt-get install python3" if status == 127 else ""


def _reason(error: Exception) -> str:
    match error:
        case asyncssh.HostKeyNotVerifiable():
            return f"its host key isn't the one in the site's known_hosts: {error.reason}"
        case asyncssh.PermissionDenied():
            return f"it refuses our key: {error.reason}"
        case asyncssh.ConnectionLost():
            return "the connection was lost"
        case asyncssh.KeyImportError() | asyncssh.KeyEncryptionError():
            return f"our private key can't be read: {error}"
        case FileNotFoundError():
            return f"{error.filename} isn't there"
        case ConnectionRefusedError():
            return "can't be reached: connection refused (is its sshd running?)"
        case OSError():
            return f"can't be reached: {os.strerror(error.errno) if error.errno else error}"
    return f"{type(error).__name__}: {error}"


def _remedy(error: Exception, node: Node) -> str:
    match error:
        case ConnectionRefusedError():
            return "on the node's console: systemctl start ssh"
        case asyncssh.ConnectionLost():
            return "audit again; if it stays, look at the node's console and its journal"
        case OSError() if not isinstance(error, FileNotFoundError):
            return "is the node switched on, and its address in the inventory right?"
        case asyncssh.HostKeyNotVerifiable():
            return "check the key on the node's console, then put it into known_hosts; never accept it unseen"
        case FileNotFoundError() if node.ssh and str(error.filename) == node.ssh.known_hosts:
            return "make it from a trusted place, e.g. the provisioning server's list of host keys"
    return ""
