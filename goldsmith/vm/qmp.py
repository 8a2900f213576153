"""QMP, the protocol by which a running QEMU is asked and told, over a stream socket: one JSON document a line."""

from __future__ import annotations

import json
import socket
from typing import Any

from goldsmith.errors import GoldsmithError

SECONDS = 30.0  # an answer takes milliseconds; on a loaded machine QEMU's main loop may have to wait its turn


class QmpError(GoldsmithError):
    """QEMU refused a command, answered no JSON, or is gone."""


class Qmp:
    """One connection. events: what QEMU told unasked so far, oldest first, as it came."""

    def __init__(self, connection: socket.socket, seconds: float = SECONDS) -> None:
        """connection: a connected stream socket; closed by `close`. seconds: for each answer."""
        connection.settimeout(seconds)
        self._socket = connection
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def greet(self) -> str:
        """Wait for QEMU's greeting and leave its negotiation mode. Returns QEMU's version. Raises QmpError."""
        greeting = self._read()
        try:
            version = greeting["QMP"]["version"]["qemu"]
        except (KeyError, TypeError):
            raise QmpError(f"not QMP: {str(greeting)[:80]}", where="QEMU") from None
        self.execute("qmp_capabilities")
        return ".".join(str(version[part]) for part in ("major", "minor", "micro"))

    def execute(self, command: str, **arguments: Any) -> Any:
        """What QEMU returns for a command. An argument `a_b` is QMP's `a-b`. Raises QmpError."""
        words = {name.replace("_", "-"): value for name, value in arguments.items()}
        request = {"execute": command, **({"arguments": words} if words else {})}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise QmpError(f"QEMU is gone: {error.strerror or error}", where=command) from None
        while True:
            answer = self._read()
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise QmpError(f"QEMU refuses: {answer['error'].get('desc', answer['error'])}", where=command)
            self.events.append(answer)

    def status(self) -> str:
        """`running`, `paused`, `shutdown`, `guest-panicked`, `internal-error` … Raises QmpError."""
        return str(self.execute("query-status")["status"])

    def monitor(self, line: str) -> str:
        """The answer of the monitor that is for people, for what QMP has no command for. Raises QmpError."""
        return str(self.execute("human-monitor-command", command_line=line))

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            try:
                more = self._socket.recv(65536)
            except TimeoutError:
                raise QmpError("QEMU doesn't answer", where="QMP") from None
            except OSError as error:
                raise QmpError(f"QEMU is gone: {error.strerror}", where="QMP") from None
            if not more:
                raise QmpError("QEMU is gone: it closed the connection", where="QMP")
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise QmpError(f"not QMP: {line[:80]!r}", where="QEMU")
        return answer
