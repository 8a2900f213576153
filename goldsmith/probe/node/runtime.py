"""Runs the parts of a probe at once, each in a child with a deadline, and prints one JSON document.

Shipped to nodes: Python 3.8, standard library only. bundle.py puts run.py before it in the same namespace.
A part that crashes, hangs, floods or prints harms only itself: `nvidia-smi` on a GPU that fell off the bus
sleeps uninterruptibly, a dead NFS server takes every path below it along.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import selectors
import signal
import socket
import time
import traceback
from typing import TYPE_CHECKING, Any, Iterable

if TYPE_CHECKING:
    from goldsmith.probe.node.run import Run

RESULT_LIMIT = 16 * 1024 * 1024
CONTAINERS = (
    "systemd-nspawn", "lxc", "lxc-libvirt", "docker", "podman", "openvz", "rkt", "wsl", "proot", "pouch",
    "container-other",
)  # fmt: skip
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Part:
    """A part that runs: its child, the pipe its answer comes through, and until when it has time."""

    def __init__(self, name: str, pid: int, pipe: int, deadline: float) -> None:
        self.name, self.pid, self.pipe = name, pid, pipe
        self.started = time.monotonic()
        self.allowed, self.ends = deadline, self.started + deadline
        self.data = b""


def main(bundle: dict[str, Any]) -> None:
    """Print a bundle's document. bundle: want, sources by file, parts (name, file, function, deadline …)."""
    document: dict[str, Any] = {"schema": 1, "parts": {}}
    try:
        document = probe(bundle, Run("/", bundle["want"]))
    except BaseException as error:
        document["error"] = describe(error)
    # children have /dev/null for stdout: nothing but this line ever goes there, and it ends with it
    text = ("\n" + json.dumps(document) + "\n").encode("ascii")
    while text:
        text = text[os.write(1, text) :]
    os._exit(0)  # no atexit, no wait: a child in uninterruptible sleep must not hold us


def probe(bundle: dict[str, Any], run: Run) -> dict[str, Any]:
    """The document of this node."""
    os.environ.update(LC_ALL="C", TZ="UTC", PATH=with_system(os.environ.get("PATH", "")))
    time.tzset()
    started, clock = time.time(), time.monotonic()
    virtualization = detect_virtualization(run)
    run.container = virtualization in CONTAINERS
    parts = run_parts([part for part in bundle["parts"] if wanted(part, run)], bundle["sources"], run)
    return {
        "schema": 1,
        "node": socket.gethostname(),
        "started": run.iso(started),
        "seconds": round(time.monotonic() - clock, 3),
        "python": platform.python_version(),
        "root": run.is_root,
        "container": run.container,
        "virtualization": virtualization,
        "target": run.target,
        "parts": parts,
    }


def with_system(path: str) -> str:
    """PATH with the system's folders: a command over ssh often comes without the sbin ones."""
    known = [one for one in path.split(":") if one]
    return ":".join(known + [one for one in SYSTEM_PATH.split(":") if one not in known])


def detect_virtualization(run: Run) -> str:
    """`none`, `kvm`, `systemd-nspawn` …: systemd's word, or else what the container says of itself."""
    done = run(["systemd-detect-virt"], timeout=1)
    if done.out.strip():
        return done.out.strip()
    named = os.environ.get("container", "")  # noqa: SIM112 (systemd's name for it)
    for path in ("/run/host/container-manager", "/run/systemd/container"):
        with contextlib.suppress(PermissionError):
            named = named or (run.read(path) or "").strip()
    return named or ("docker" if run.exists("/.dockerenv") else "none")


def wanted(part: dict[str, Any], run: Run) -> bool:
    """Whether a part applies here: `always`, on a `live` system, or where the `kernel` is the node's own."""
    only = run.want.get("parts")
    if only is not None and part["name"] not in only:
        return False
    if part["where"] == "kernel":
        return run.target == "live" and not run.container
    return part["where"] == "always" or run.target == "live"


def run_parts(parts: list[dict[str, Any]], sources: dict[str, str], run: Run) -> dict[str, Any]:
    """name → its facts or its error, with the seconds it took. All at once, in the order given."""
    running: dict[int, Part] = {}
    answers: dict[str, Any] = {part["name"]: None for part in parts}
    handlers = {number: signal.signal(number, lambda *_: stop(running)) for number in
                (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}  # fmt: skip
    selector = selectors.DefaultSelector()
    try:
        for part in parts:
            started = start(part, sources, run)
            running[started.pipe] = started
            selector.register(started.pipe, selectors.EVENT_READ)
        while running:
            nearest = min(one.ends for one in running.values()) - time.monotonic()
            # at least every 0.1 s, as a crashed part's own children may still hold its pipe open
            ready = {key.fd for key, _ in selector.select(min(max(nearest, 0), 0.1))}
            for one in list(running.values()):
                answer = advance(one, one.pipe in ready)
                if answer is not None:
                    answers[one.name] = dict(seconds=round(time.monotonic() - one.started, 3), **answer)
                    selector.unregister(one.pipe)
                    os.close(one.pipe)
                    del running[one.pipe]
    finally:
        for left in running.values():
            kill(left)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        selector.close()
    return answers


def stop(running: dict[int, Part]) -> None:
    """We are told to end: so do all children."""
    for part in running.values():
        kill(part)
    os._exit(1)


def start(part: dict[str, Any], sources: dict[str, str], run: Run) -> Part:
    """Fork the part's child, in a session (so a process group) of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        os.set_blocking(reading, False)
        return Part(part["name"], pid, reading, part["deadline"] * run.patience)
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # should the runtime itself be killed, the kernel still ends this child
        signal.alarm(int(part["deadline"] * run.patience) + 2)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        os.close(reading)
        text = answer_of(part, sources[part["file"]], run).encode("utf-8", "replace") + b"\0"
        while text:
            text = text[os.write(writing, text) :]
    finally:
        os._exit(0)


def answer_of(part: dict[str, Any], source: str, run: Run) -> str:
    """In the child: the part's answer as JSON, {"facts"} or {"error"}. Never raises."""
    try:
        run.variables = (run.want.get("variables") or {}).get(part.get("role"), {})
        names: dict[str, Any] = {"__name__": part["name"]}
        exec(compile(source, part["file"], "exec", dont_inherit=True), names)
        return json.dumps({"facts": names[part["function"]](run)}, ensure_ascii=False, allow_nan=False)
    except BaseException as error:
        return json.dumps({"error": describe(error)}, ensure_ascii=False)


def describe(error: BaseException) -> str:
    """One line: what and where."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error)[:500]}{where}"


def advance(part: Part, readable: bool) -> dict[str, Any] | None:
    """The part's answer if it has one now, else None. It is dead in the first case."""
    # read the state before the pipe: what it wrote before it died is then certainly there
    dead = exit_status(part.pid)
    ended = False
    if readable or dead is not None:
        with contextlib.suppress(BlockingIOError):
            while not ended:
                data = os.read(part.pipe, 1 << 16)
                part.data += data
                ended = not data or len(part.data) > RESULT_LIMIT
    if part.data.endswith(b"\0"):
        answer: dict[str, Any] = json.loads(part.data[:-1].decode("utf-8"))
    elif len(part.data) > RESULT_LIMIT:
        answer = {"error": f"more than {RESULT_LIMIT >> 20} MiB of facts"}
    elif dead is not None:
        answer = {"error": dead}
    elif time.monotonic() >= part.ends:
        answer = {"error": f"no answer within {part.allowed:g} s, killed"}
    else:
        return None
    kill(part, everywhere="error" in answer)
    return answer


def exit_status(pid: int) -> str | None:
    """How the child ended, in words; None if it runs. It stays a zombie, so that its group isn't reused."""
    try:
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return "ended"
    if info is None:
        return None
    if info.si_code == os.CLD_EXITED:
        return f"ended without an answer, exit code {info.si_status}"
    return f"killed by signal {info.si_status}"


def kill(part: Part, everywhere: bool = True) -> None:
    """End the part with all that it started, without ever waiting for it: up to 0.1 s, then it is init's.

    everywhere: the groups of its commands too. A part that ended well has ended them, and looking through
    /proc costs 10 microseconds a process of the node.
    """
    groups = {part.pid}
    if everywhere:
        groups.update(groups_of_session(part.pid))
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    for _ in range(20):
        try:
            if os.waitpid(part.pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        time.sleep(0.005)


def groups_of_session(session: int) -> Iterable[int]:
    """The process groups of a session: a command of a part has a group of its own (run.py)."""
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/" + name + "/stat") as file:
                # pid (comm) state ppid pgrp session …: comm may hold blanks and brackets
                fields = file.read().rsplit(")", 1)[1].split()
                if int(fields[3]) == session:
                    yield int(fields[2])
