"""One node: a writable layer over a shared root file system, booted by systemd-nspawn.

The overlay is mounted in a mount namespace of the node's own, so this machine's mount table never shows it,
and it is gone when the node is, however the node ends.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from goldsmith import cgroups, processes
from goldsmith.errors import GoldsmithError
from goldsmith.image.tree import Tree
from goldsmith.lab import identity
from goldsmith.lab.settings import LabSettings
from goldsmith.processes import Process

# Words of this constant are only ever arguments: groups to join up to `--`, overlay options, mount point,
# program.
_ENTER = """set -e
while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs"; shift; done
mount -t overlay overlay -o "$2" "$3"
shift 3
exec "$@"
"""


def marker(settings: LabSettings, node: str) -> str:
    """The argument by which a node's systemd-nspawn is known among all processes of this machine."""
    return f"--directory={settings.node_dir(node) / 'merged'}"


def command(settings: LabSettings, node: str, tree: Path, groups: list[Path]) -> list[str]:
    """What is started for a node.

    tree: the shared root file system. groups: cgroup folders to join, empty where this machine's systemd
    makes them.
    """
    folder = settings.node_dir(node)
    options = f"lowerdir={tree},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    return [
        *("unshare", "--mount", "--propagation", "slave", "--", "sh", "-c", _ENTER, "goldsmith-node"),
        *map(str, groups),
        *("--", options, str(folder / "merged")),
        "systemd-nspawn",
        "--quiet",
        "--boot",
        marker(settings, node),
        f"--machine={settings.machine(node)}",
        f"--hostname={node}",
        f"--network-bridge={settings.bridge}",
        # No machined here (a container, a rescue system); without a host systemd no scope of ours either.
        "--register=no",
        *(["--keep-unit"] if groups else []),
        # Nothing of this machine's configuration gets into a node.
        *("--settings=no", "--resolv-conf=off", "--timezone=off", "--link-journal=no"),
        "--console=read-only",
    ]


def start(settings: LabSettings, node: str, tree: Path) -> Process:
    """Boot the node over `tree`; returns at once. What its writable layer holds already is kept."""
    folder = settings.node_dir(node)
    for name in ("upper", "work", "merged"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "upper").chmod(0o755)  # it becomes the node's /
    with Tree(folder / "upper") as upper:
        identity.lay(upper, settings, node)
    groups = cgroups.make(settings.machine(node))
    console = folder / "console.log"
    console.write_bytes(b"")
    argv = command(settings, node, tree, groups)
    return processes.spawn(argv, log=console, cwd=settings.state, what=f"start {node}")


def clear(settings: LabSettings, node: str) -> None:
    """End and remove whatever is left of a node that was shut down, or whose systemd-nspawn was killed."""
    processes.kill(processes.find(marker(settings, node)))
    processes.kill(processes.in_overlay(settings.node_dir(node) / "upper"))
    cgroups.remove(settings.machine(node))
    with suppress(OSError):  # systemd-nspawn's own; it removes the folder itself unless it is killed
        (Path("/run/systemd/nspawn/propagate") / settings.machine(node)).rmdir()


def wait_for_ssh(settings: LabSettings, node: str, process: Process, give_up: Callable[[], bool]) -> None:
    """Return when the node's sshd has greeted. give_up: asked between two tries. Raises GoldsmithError with
    the end of the node's console."""
    address = str(settings.address(node))
    reason = "it didn't answer"
    while process.alive:
        try:
            with socket.create_connection((address, 22), timeout=2) as connection:
                greeting = connection.recv(64)
            if greeting.startswith(b"SSH-"):
                return
            reason = f"port 22 answered {greeting!r}"
        except OSError as error:
            reason = error.strerror or str(error)
        if give_up():
            break
        time.sleep(0.1)
    else:
        reason = "it ended while it booted"
    log = settings.node_dir(node) / "console.log"
    raise GoldsmithError(
        f"{node} doesn't answer ssh: {reason}. The end of its console:\n  {console_tail(log)}",
        where=str(log),
        hint="a firewall of this machine may drop the bridge's traffic" if "time" in reason else "",
    )


def console_tail(log: Path, lines: int = 12) -> str:
    """The last lines of a console, without the colours of a terminal."""
    text = ""
    with suppress(OSError):
        text = log.read_bytes()[-16_384:].decode(errors="replace")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r", "", text)
    return "\n  ".join([line for line in text.splitlines() if line.strip()][-lines:]) or "(empty)"
