"""Serving the pool to nodes: plain HTTP, read-only, only what apt and pip ask for. Its integrity is apt's signature
check, and pip's of the hashes that the lock gives it.

Facts: apt keeps connections open and pipelines requests (Acquire::http::Pipeline-Depth), hence HTTP/1.1.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from goldsmith.errors import GoldsmithError


class _Handler(SimpleHTTPRequestHandler):
    """GET and HEAD of the pool's files. No listings (an index.html is a file, PEP 503's), no hidden names, nothing
    outside the pool."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "goldsmith", ""
    # a node that is switched off in the middle of a connection doesn't keep a thread for ever (seconds)
    timeout = 120
    disable_nagle_algorithm = True

    def send_head(self) -> BytesIO | BinaryIO | None:
        if not self._allowed():
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def _allowed(self) -> bool:
        path = Path(self.translate_path(self.path))
        try:
            hidden = any(part.startswith(".") for part in path.relative_to(self.directory).parts)
            inside = path.resolve().is_relative_to(Path(self.directory).resolve())
            if path.is_dir():
                return inside and not hidden and (path / "index.html").is_file()
            return inside and not hidden and not self.path.endswith("/") and path.is_file()
        except (ValueError, OSError):  # a zero byte, a name that is too long
            return False

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: a deploy is thousands of requests."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a fleet's nodes ask at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up isn't our error."""


def make_server(root: Path, address: str, port: int) -> ThreadingHTTPServer:
    """A bound server over `root` (a pool's folder); port 0 takes a free one. Raises GoldsmithError."""
    if not root.is_dir():
        raise GoldsmithError("there is no pool yet", where=str(root), hint="make it: goldsmith lock images/lab")
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        kind = type("_Bound", (_Server,), {"address_family": family})
        server: ThreadingHTTPServer = kind((address, port), partial(_Handler, directory=str(root)))
        return server
    except (OSError, OverflowError) as error:
        raise GoldsmithError(
            f"can't listen on {address} port {port}: {error}", hint="give another --bind or --port"
        ) from None


@contextmanager
def serving(root: Path, address: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Serve while the block runs; gives the port."""
    server = make_server(root, address, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def serve(root: Path, address: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    server = make_server(root, address, port)

    def stop(*_: object) -> None:
        # shutdown waits for the loop that this very thread runs
        threading.Thread(target=server.shutdown, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        server.server_close()
        for number, handler in before.items():
            signal.signal(number, handler)
