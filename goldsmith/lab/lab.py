"""The lab: nodes of an image on this machine, each with its own systemd, address and sshd.

Whoever calls a function here that changes something holds `settings.lock_file` (goldsmith.holding).
What was started is either recorded in the lab's state or stopped again, whatever interrupts us; `down` finds
also what a killed run left behind.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldsmith import process, processes
from goldsmith.errors import GoldsmithError
from goldsmith.image.artifact import Artifact
from goldsmith.lab import keys, network, node, pool, state, trees
from goldsmith.lab.settings import LabSettings
from goldsmith.lab.state import LabState, Lower, NodeState, Running
from goldsmith.processes import Process
from goldsmith.progress import console, step
from goldsmith.removal import remove_tree

BOOT_SECONDS = 180.0  # two seconds where it is idle; a loaded machine with two cores takes its time

_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=4).close()"


@dataclass(frozen=True)
class NodeStatus:
    """state: running, stopped, died (its process ended by itself) or absent (never started)."""

    name: str
    address: str
    state: str
    lower: str = ""


@dataclass(frozen=True)
class LabStatus:
    """image: what the golden nodes were made from, NAME and digest; empty where there is no lab."""

    name: str
    image: str
    pool_running: bool
    nodes: tuple[NodeStatus, ...]

    @property
    def running(self) -> list[str]:
        return [one.name for one in self.nodes if one.state == "running"]


def up(settings: LabSettings, artifact: Artifact, base: Path, nodes: Iterable[str] | None = None) -> LabStatus:
    """Bring bridge, pool server and nodes up; what runs already is kept unless the image is another.

    artifact: the image that the nodes are made from. base: its base system, for bare nodes. nodes: names, default
    all of the settings. Returns when every node's sshd answers. Raises GoldsmithError; then the nodes that this
    call started are stopped again.
    """
    wanted = list(settings.nodes) if nodes is None else list(nodes)
    for name in wanted:
        settings.address(name)
    settings.state.mkdir(parents=True, exist_ok=True)
    lab = state.load(settings)
    if lab.digest and lab.digest != artifact.sha256:
        console.print(f"The image of lab {settings.name} is another now: its nodes are made anew")
        _stop(settings, lab, list(lab.nodes))
        for name in list(lab.nodes):
            _forget(settings, lab, name)
    with trees.settled(settings.root):
        golden = trees.golden_tree(artifact, settings.root)
        lab.image, lab.digest = artifact.image, artifact.sha256
        lab.trees = {"golden": str(golden), "base": str(base)}
        state.save(settings, lab)
        trees.prune(settings.root)
    keys.make(settings)
    network.up(settings)
    _serve_pool(settings, lab)
    _start(settings, lab, {name: _lower(lab, name) for name in wanted})
    return status(settings)


def _lower(lab: LabState, name: str) -> Lower:
    return lab.nodes[name].lower if name in lab.nodes else "golden"


def start_node(settings: LabSettings, name: str, lower: Lower = "golden") -> None:
    """Start one node of a lab that is up, and return when its sshd answers.

    lower: "golden" is the image, "base" the base system that `deploy` has yet to converge. A node that lies
    on the other one is made anew; one that was stopped goes on with what it had on its disk.
    """
    settings.address(name)
    lab = state.load(settings)
    if not lab.trees:
        raise GoldsmithError(f"lab {settings.name} isn't up", hint="bring it up: make lab")
    known = lab.nodes.get(name)
    if known and (known.lower, known.tree) != (lower, lab.trees.get(lower)):
        _stop(settings, lab, [name])
        _forget(settings, lab, name)
    keys.make(settings)
    network.up(settings)
    _serve_pool(settings, lab)
    _start(settings, lab, {name: lower})


def stop_node(settings: LabSettings, name: str) -> None:
    """Shut a node down in order. What it has on its disk stays."""
    settings.address(name)
    lab = state.load(settings)
    with step(f"stop {name}"):
        _stop(settings, lab, [name])


def remove_node(settings: LabSettings, name: str) -> None:
    """Stop a node and remove what it has on its disk; the next start makes it anew."""
    lab = state.load(settings)
    _stop(settings, lab, [name])
    _forget(settings, lab, name)


def down(settings: LabSettings, *, remove: bool = False) -> None:
    """Stop nodes, pool server and bridge. remove: the lab's files, too; then nothing of it is left."""
    if not settings.state.exists():
        network.down(settings)
        return  # a lab that was never up, or that was removed
    try:
        lab = state.load(settings)
    except GoldsmithError:
        if not remove:
            raise
        lab = LabState()
    with step(f"stop lab {settings.name}"):
        names = sorted({*lab.nodes, *_node_folders(settings)})
        _stop(settings, lab, names)
        servers = processes.find(pool.marker(settings))
        processes.stop(servers, patience=5)
        lab.pool = None
        network.down(settings)
        if not remove:
            state.save(settings, lab)
    if remove:
        with step(f"remove lab {settings.name}'s files"):
            remove_tree(settings.state, settings.root)
            with trees.settled(settings.root):
                trees.prune(settings.root)


def status(settings: LabSettings) -> LabStatus:
    """What runs. A node whose process is gone without our stopping it has died."""
    lab = state.load(settings)
    nodes = []
    for name, address in settings.nodes.items():
        known = lab.nodes.get(name)
        if known is None:
            nodes.append(NodeStatus(name, str(address), "absent"))
            continue
        word = "stopped"
        if known.running:
            word = "running" if known.running.process.alive else "died"
        nodes.append(NodeStatus(name, str(address), word, known.lower))
    image = f"{lab.image} {lab.digest[:12]}" if lab.image else ""
    return LabStatus(settings.name, image, bool(lab.pool and lab.pool.process.alive), tuple(nodes))


def node_shell(
    settings: LabSettings, name: str, argv: Sequence[str], *, timeout: float = 60, stdin: str | None = None
) -> process.Done:
    """Run a program in a running node from outside, past its sshd; the exit code is the caller's to judge.

    For tests and rescue: it enters the node's namespaces from this machine.
    """
    inside = leader(settings, name)
    entered = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root"]
    # env: this machine's variables are none of the node's
    clean = [
        "/usr/bin/env",
        "--ignore-environment",
        "--chdir=/",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
    ]
    return process.run(
        ["nsenter", f"--target={inside}", *entered, "--", *clean, *argv],
        timeout=timeout,
        what=f"{argv[0]} on {name}",
        check=False,
        stdin=stdin,
    )


def leader(settings: LabSettings, name: str) -> int:
    """This machine's pid of a running node's PID 1."""
    settings.address(name)
    known = state.load(settings).nodes.get(name)
    pid = None
    if known and known.running and known.running.process.alive:
        pid = processes.leader(known.running.process)
    if pid is None:
        raise GoldsmithError(f"{name} isn't running", hint=f"start it: goldsmith lab start {name}")
    return pid


def _serve_pool(settings: LabSettings, lab: LabState) -> None:
    if lab.pool and lab.pool.process.alive:
        return
    # one that a killed run started and didn't record
    processes.stop(processes.find(pool.marker(settings)), patience=3)
    server = pool.start(settings)
    with _stopping_on_error(lambda: processes.stop([server], patience=3)):
        lab.pool = Running.of(server)
        state.save(settings, lab)


def _start(settings: LabSettings, lab: LabState, wanted: Mapping[str, Lower]) -> None:
    """Boot those of `wanted` that don't run and wait for them all; stop them again if one fails."""
    started: dict[str, Process] = {}
    idle = [name for name in wanted if not _runs(lab, name)]
    if not idle:
        return

    def undo() -> None:
        # a systemd that is still booting doesn't hear the request, and there is nothing on its disk to lose
        _stop(settings, lab, list(started), patience=2)

    with step(f"boot {_list(idle)}") as current, _stopping_on_error(undo):
        for name in idle:
            lower = wanted[name]
            if lower not in lab.trees:
                raise GoldsmithError(f"there is no {lower} system in this lab", hint="bring it up: make lab")
            node.clear(settings, name)
            tree = lab.nodes[name].tree if name in lab.nodes else lab.trees[lower]
            with _uninterrupted():
                started[name] = node.start(settings, name, Path(tree))
                lab.nodes[name] = NodeState(lower=lower, tree=tree, running=Running.of(started[name]))
                state.save(settings, lab)
        _wait(settings, started, current.say)
        _check_reach(settings, started)


def _wait(settings: LabSettings, started: Mapping[str, Process], say: Callable[[str], None]) -> None:
    """Until every node's sshd answers; the first one that doesn't is told."""
    deadline = time.monotonic() + BOOT_SECONDS
    enough = threading.Event()  # one has failed, or the user has had enough: nobody waits on
    waiting = set(started)

    def give_up() -> bool:
        return enough.is_set() or time.monotonic() > deadline

    def one(name: str) -> None:
        node.wait_for_ssh(settings, name, started[name], lambda: enough.is_set() or time.monotonic() > deadline)
        waiting.discard(name)
        say(f"waiting for {_list(sorted(waiting))}")

    with ThreadPoolExecutor(max_workers=min(32, len(started))) as threads:
        try:
            for future in as_completed([threads.submit(one, name) for name in started]):
                future.result()
        finally:
            enough.set()


def _check_reach(settings: LabSettings, started: Mapping[str, Process]) -> None:
    """Nodes reach the pool, and each other: a firewall on this machine may see a bridge's traffic, too."""
    names = list(started)
    targets = [(str(settings.controller.ip), settings.pool_port, "the pool")]
    if len(names) > 1:
        targets.append((str(settings.address(names[-1])), 22, names[-1]))
    for address, port, what in targets:
        argv = [
            "nsenter",
            f"--target={leader(settings, names[0])}",
            "--net",
            "--",
            sys.executable,
            "-I",
            "-c",
        ]
        done = process.run(
            [*argv, _CONNECT, address, str(port)], timeout=20, what=f"{names[0]} reaches {what}", check=False
        )
        if done.code != 0:
            reason = done.tail.splitlines()[-1].strip() if done.tail else "no answer"
            raise GoldsmithError(
                f"{names[0]} can't reach {what} at {address} port {port} ({reason}): "
                "a firewall of this machine drops the bridge's traffic",
                hint=f"let it through: iptables -I INPUT -i {settings.bridge} -j ACCEPT; "
                f"iptables -I FORWARD -i {settings.bridge} -o {settings.bridge} -j ACCEPT",
            )


def _runs(lab: LabState, name: str) -> bool:
    known = lab.nodes.get(name)
    return bool(known and known.running and known.running.process.alive)


def _stop(settings: LabSettings, lab: LabState, names: Sequence[str], patience: float = 20) -> None:
    """Shut nodes down in order, all at once, by what the state says and by what the process table says.

    patience: seconds they have for it; then they are killed.

    On SIGTERM systemd-nspawn asks the node's PID 1 for an orderly end; killed, it takes the node with it. The
    node's overlay goes with its mount namespace.
    """
    found: dict[int, Process] = {}
    for name in names:
        known = lab.nodes.get(name)
        recorded = [known.running.process] if known and known.running else []
        found |= {one.pid: one for one in [*recorded, *processes.find(node.marker(settings, name))]}
    processes.stop(list(found.values()), patience=patience)
    for name in names:
        node.clear(settings, name)
        if name in lab.nodes:
            lab.nodes[name].running = None
    if lab.nodes:
        state.save(settings, lab)


def _forget(settings: LabSettings, lab: LabState, name: str) -> None:
    remove_tree(settings.node_dir(name), settings.root)
    lab.nodes.pop(name, None)
    state.save(settings, lab)


def _node_folders(settings: LabSettings) -> list[str]:
    folder = settings.state / "nodes"
    return [one.name for one in folder.iterdir()] if folder.is_dir() else []


def _list(names: Sequence[str]) -> str:
    from ClusterShell.NodeSet import NodeSet

    return str(NodeSet.fromlist(list(names)))


@contextmanager
def _stopping_on_error(undo: Callable[[], None]) -> Iterator[None]:
    """Run `undo` if the block raises, Ctrl-C included."""
    try:
        yield
    except BaseException:
        undo()
        raise


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait for the block's end: between starting a process and writing down that it
    runs.
    """
    came: list[int] = []
    before: dict[int, Any] = {}
    for number in (int(signal.SIGINT), int(signal.SIGTERM)):
        with suppress(ValueError):  # not the main thread: signals don't come here anyway
            before[number] = signal.signal(number, lambda got, _frame: came.append(got))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in came:
        signal.raise_signal(number)
