"""The wheelhouse: fetched by hash, indexed, served; and what isn't the locked file never gets in."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.lock import download as downloading
from goldsmith.lock.download import download, size_of
from goldsmith.lock.serve import serving
from goldsmith.lock.wheelhouse import Wheelhouse
from goldsmith.model.lock import Lock, LockedEnvironment

from .make import lock as make_lock
from .wheels_fake import index, resolved, stack, wheel

PYTHON = f"3.{sys.version_info.minor}"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "file:///nonexistent/simple")
    monkeypatch.setattr(downloading.time, "sleep", lambda _: None)


@pytest.fixture
def environment(tmp_path: Path) -> LockedEnvironment:
    address = index(tmp_path / "simple", stack(tmp_path / "wheels", PYTHON.replace(".", "")))
    return resolved(address, tmp_path / "uv", "torch==2.6.0", python=PYTHON)


def lock_of(environment: LockedEnvironment, **more: LockedEnvironment) -> Lock:
    return make_lock().model_copy(update={"environments": {"train": environment, **more}})


def filled(tmp_path: Path, environment: LockedEnvironment) -> Wheelhouse:
    house = Wheelhouse(tmp_path / "pool")
    house.fetch({"train": environment}, tmp_path / "uv", lambda _: None)
    return house


def test_pip_installs_from_it_by_hash_alone(tmp_path: Path, environment: LockedEnvironment) -> None:
    house, lock = filled(tmp_path, environment), lock_of(environment)
    assert house.lacking(environment.wheels.values(), verify=True) == house.damaged(lock) == []
    assert house.faults(lock)
    house.publish(lock)
    assert not house.faults(lock)
    needed = tmp_path / "requirements.txt"
    needed.write_text("".join(f"{one.name}=={one.version} --hash=sha256:{one.sha256}\n"
                              for one in environment.wheels.values()))  # fmt: skip
    with serving(house.root) as port:
        for number, pool in enumerate((f"http://127.0.0.1:{port}", house.root.as_uri())):
            target = tmp_path / f"target{number}"
            pip = ["pip", "download", "-q", "--no-deps", "--require-hashes", "--only-binary=:all:", "--no-cache-dir",
                   "--index-url", f"{pool}/simple/lab/train/", "-d", target, "-r", needed]  # fmt: skip
            environ = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
            subprocess.run([sys.executable, "-m", *map(str, pip)], check=True, timeout=120, env=environ)
            assert sorted(one.name for one in target.iterdir()) == sorted(
                one.filename for one in environment.wheels.values()
            )


def test_only_index_pages_are_served_of_folders(tmp_path: Path, environment: LockedEnvironment) -> None:
    house = filled(tmp_path, environment)
    house.publish(lock_of(environment))
    hidden = next(one.name for one in (house.root / "simple").iterdir() if one.name.startswith("."))
    with serving(house.root) as port:
        for path, code in (
            ("simple/lab/train/", 200), ("simple/lab/train/torch/", 200), ("simple/lab/train/torch", 200),
            ("simple/lab/", 404), ("simple/", 404), ("wheels/", 404), (f"simple/{hidden}/train/", 404),
        ):  # fmt: skip
            try:
                found = urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10).status
            except urllib.error.HTTPError as error:
                found = error.code
            assert found == code, path


def test_a_flipped_byte_is_found_and_fetched_again(tmp_path: Path, environment: LockedEnvironment) -> None:
    house = filled(tmp_path, environment)
    path = house.path(environment.wheels["torch"])
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    assert house.lacking(environment.wheels.values()) == []  # sizes alone
    assert [one.name for one in house.damaged(lock_of(environment))] == ["torch"]
    house.fetch({"train": environment}, tmp_path / "uv", lambda _: None, verify=True)
    assert house.damaged(lock_of(environment)) == []


def test_another_file_on_the_index_is_refused_and_named(tmp_path: Path, environment: LockedEnvironment) -> None:
    origin = tmp_path / "wheels" / environment.wheels["torch"].filename
    content = bytearray(origin.read_bytes())
    content[40] ^= 1
    origin.write_bytes(content)  # the index still says the old hash
    house = Wheelhouse(tmp_path / "pool")
    with pytest.raises(GoldsmithError, match=rf"{origin.name} isn't the file that was locked"):
        house.fetch({"train": environment}, tmp_path / "uv", lambda _: None)
    assert not list(house.root.glob("wheels/*/*/torch*"))
    with pytest.raises(GoldsmithError, match=f"the pool lacks .*{origin.name}"):
        house.publish(lock_of(environment))
    # the index says another hash, too; then it has it no more
    index(tmp_path / "simple", (tmp_path / "wheels").iterdir())
    with pytest.raises(GoldsmithError, match="another file: sha256"):
        house.fetch({"train": environment}, tmp_path / "uv", lambda _: None)
    index(tmp_path / "simple", [wheel(tmp_path / "w", "torch", "2.7.0")])
    with pytest.raises(GoldsmithError, match=r"there is no torch 2\.6\.0"):
        house.fetch({"train": environment}, tmp_path / "uv", lambda _: None)


def test_the_index_is_swapped_and_goes_with_the_environments(tmp_path: Path, environment: LockedEnvironment) -> None:
    house, lock = filled(tmp_path, environment), lock_of(environment)
    house.publish(lock)
    fewer = environment.model_copy(update={"wheels": {"numpy": environment.wheels["numpy"]}})
    house.publish(lock_of(fewer))
    assert house.faults(lock) and not house.faults(lock_of(fewer))
    simple = house.root / "simple"
    assert sorted(one.name for one in (simple / "lab/train").iterdir()) == ["index.html", "numpy"]
    assert len(list(simple.iterdir())) == 2  # the link, and the one folder that it leads to
    house.publish(make_lock())
    assert not house.faults(make_lock()) and not (simple / "lab").exists()
    assert house.lacking(environment.wheels.values()) == []  # old locks' wheels stay


class _Flaky(http.server.BaseHTTPRequestHandler):
    """Breaks off half-way, until it is asked for a range."""

    content = bytes(range(256)) * 5000
    asked: ClassVar[list[tuple[str | None, str | None]]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.asked.append((wanted, self.headers.get("Authorization")))
        start = int(wanted.split("=")[1].rstrip("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        end = len(self.content) if wanted else 500_000
        if self.command == "GET":
            self.wfile.write(self.content[start:end])

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def flaky() -> Iterator[str]:
    _Flaky.asked = []
    server = http.server.HTTPServer(("127.0.0.1", 0), _Flaky)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/x-1-py3-none-any.whl"
    finally:
        server.shutdown()
        server.server_close()


def test_a_download_goes_on_where_it_broke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    digest, size = sha256(_Flaky.content).hexdigest(), len(_Flaky.content)
    with flaky() as url:
        assert size_of(url) == size
        download(url, tmp_path / "x.whl", digest=digest, size=size, name="x.whl")
        assert [one[0] for one in _Flaky.asked[1:]] == [None, "bytes=500000-"]
        assert all(one[1] == "Basic bWU6c2VjcmV0" for one in _Flaky.asked)
        with pytest.raises(GoldsmithError, match=r"y\.whl isn't the file") as caught:
            download(url, tmp_path / "y.whl", digest="0" * 64, size=size, name="y.whl")
    assert (tmp_path / "x.whl").read_bytes() == _Flaky.content
    assert not list(tmp_path.glob("y.whl*")) and "secret" not in str(caught.value)


def test_a_server_that_isnt_there(tmp_path: Path) -> None:
    url = "http://me:secret@127.0.0.1:9/x.whl"
    with pytest.raises(GoldsmithError, match=r"x\.whl can't be fetched: .*refused") as caught:
        download(url, tmp_path / "x.whl", digest="0" * 64, size=1, name="x.whl")
    assert "secret" not in str(caught.value)
