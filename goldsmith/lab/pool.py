"""The pool's server of a lab, on the controller's address and nowhere else."""

from __future__ import annotations

import socket
import sys
import time

from goldsmith import processes
from goldsmith.errors import GoldsmithError
from goldsmith.lab.node import console_tail
from goldsmith.lab.settings import LabSettings
from goldsmith.processes import Process

# Its arguments: the marker, folder, address, port.
_SERVE = (
    "import sys; from pathlib import Path; from goldsmith.lock.serve import serve; "
    "serve(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))"
)


def command(settings: LabSettings) -> list[str]:
    """What is started. -I: neither the working directory nor the user's environment decides what is
    imported.
    """
    address, port = str(settings.controller.ip), str(settings.pool_port)
    folder = settings.root / "pool"
    return [sys.executable, "-I", "-c", _SERVE, marker(settings), str(folder), address, port]


def marker(settings: LabSettings) -> str:
    """The argument by which the server is known among all processes of this machine."""
    return f"goldsmith-pool-of={settings.state}"


def start(settings: LabSettings, *, seconds: float = 20) -> Process:
    """Start the server and return when it answers. Raises GoldsmithError with the end of its log."""
    log = settings.state / "pool.log"
    log.write_bytes(b"")
    address = (str(settings.controller.ip), settings.pool_port)
    if _answers(address):
        raise GoldsmithError(
            f"port {address[1]} on {address[0]} is in use already",
            hint="give the lab another port: lab.pool_port in the inventory",
        )
    process = processes.spawn(command(settings), log=log, cwd=settings.state, what="serve the pool")
    deadline = time.monotonic() + seconds
    while process.alive and time.monotonic() < deadline:
        if _answers(address):
            return process
        time.sleep(0.05)
    processes.stop([process], patience=2)
    raise GoldsmithError(f"the pool's server doesn't answer:\n  {console_tail(log)}", where=str(log))


def _answers(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True
