"""The pool's HTTP server, on loopback: what it gives and what it refuses."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.lock.serve import make_server, serving


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    root = tmp_path / "state/pool"
    (root / "pool/main").mkdir(parents=True)
    (root / "pool/main/a b+c~1_amd64.deb").write_bytes(b"deb" * 100_000)
    (root / "dists/.lab-1").mkdir(parents=True)
    (root / "dists/.lab-1/InRelease").write_text("signed")
    (root / "dists/lab").symlink_to(".lab-1")
    (root / "goldsmith.asc").write_text("key")
    (tmp_path / "state/secret.asc").write_text("secret")
    (root / "out").symlink_to(tmp_path / "state/secret.asc")
    return root


@pytest.fixture
def connection(pool: Path) -> Iterator[http.client.HTTPConnection]:
    with serving(pool) as port:
        yield http.client.HTTPConnection("127.0.0.1", port, timeout=10)


def get(connection: http.client.HTTPConnection, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection.request(method, path)
    response = connection.getresponse()
    return response.status, response.read()


def test_files_over_one_connection(connection: http.client.HTTPConnection) -> None:
    connection.connect()
    here = connection.sock.getsockname()
    assert get(connection, "/dists/lab/InRelease") == (200, b"signed")
    assert get(connection, "/pool/main/a%20b+c~1_amd64.deb") == (200, b"deb" * 100_000)
    assert get(connection, "/goldsmith.asc", "HEAD") == (200, b"")
    assert get(connection, "/goldsmith.asc?x=1") == (200, b"key")
    assert connection.sock.getsockname() == here
    assert get(connection, "/none")[0] == 404


@pytest.mark.parametrize(
    "path",
    ["/", "/dists/", "/dists", "/dists/.lab-1/InRelease", "/../secret.asc", "/%2e%2e/secret.asc", "/..%2fsecret.asc",
     "/pool/../../secret.asc", "/out", "/dists/lab/", "//etc/passwd", "/%00", "/dists/%2elab-1/InRelease"],
)  # fmt: skip
def test_nothing_else(connection: http.client.HTTPConnection, path: str) -> None:
    status, body = get(connection, path)
    assert status in (400, 404) and b"secret" not in body.split(b"</title>")[-1].replace(path.encode(), b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_read_only(connection: http.client.HTTPConnection, method: str) -> None:
    assert get(connection, "/goldsmith.asc", method)[0] == 501


def test_not_modified(connection: http.client.HTTPConnection) -> None:
    connection.request("GET", "/goldsmith.asc")
    response = connection.getresponse()
    response.read()
    connection.request("GET", "/goldsmith.asc", headers={"If-Modified-Since": response.headers["Last-Modified"]})
    assert connection.getresponse().status == 304


def test_no_pool_and_a_taken_port_are_said(pool: Path, tmp_path: Path) -> None:
    with pytest.raises(GoldsmithError, match="no pool yet"):
        make_server(tmp_path / "none", "127.0.0.1", 0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(GoldsmithError, match="can't listen on"):
            make_server(pool, "127.0.0.1", other.getsockname()[1])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_served_pool_ends_when_told(pool: Path, number: signal.Signals) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (
        "import sys, pathlib; from goldsmith.lock import serve;"
        "serve(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(pool), "127.0.0.1", str(port)])
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                assert get(http.client.HTTPConnection("127.0.0.1", port, timeout=5), "/goldsmith.asc")[0] == 200
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        os.kill(process.pid, number)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
