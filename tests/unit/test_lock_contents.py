from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.lock.contents import node_path, read_deb
from tests.unit.lock_debs import Deb, build, needs_apt


@pytest.mark.parametrize(
    ("member", "path"),
    [
        ("./usr/lib/libx.so", "/usr/lib/libx.so"),
        ("./lib/x86_64-linux-gnu/libx.so.1", "/usr/lib/x86_64-linux-gnu/libx.so.1"),
        ("lib64/libx.so", "/usr/lib64/libx.so"),
        ("./opt/lib/libx.so", "/opt/lib/libx.so"),
    ],
)
def test_paths_are_the_nodes(member: str, path: str) -> None:
    assert node_path(member) == path


@needs_apt
def test_the_libraries_of_a_deb(tmp_path: Path) -> None:
    big = b"x" * 3_000_000
    files = {
        "/usr/lib/libbig.so.2.22.3": big, "/lib/libold.so": b"", "/usr/lib/python3/_C.cpython.so": b"not lib*",
        "/usr/share/doc/libbig.so/copyright": b"a folder's name", "/usr/lib/libstatic.a": b"a",
        "/lib/systemd/system/big.service": b"[Unit]", "/usr/lib/systemd/system/big.service.d/x.conf": b"",
        "/usr/lib/systemd/system/big@.timer": b"[Unit]",
    }  # fmt: skip
    contents = read_deb(build(Deb("libbig", files=files), tmp_path))
    assert contents.units == ("big.service", "big@.timer") and not contents.preferences
    found = contents.libraries
    assert list(found) == ["/usr/lib/libbig.so.2.22.3", "/usr/lib/libold.so"]
    one = found["/usr/lib/libbig.so.2.22.3"]
    assert (one.size, one.sha256) == (len(big), sha256(big).hexdigest())


@needs_apt
def test_apt_preferences_are_seen(tmp_path: Path) -> None:
    pinning = Deb("nvidia-driver-pinning-580.95.05", files={"/etc/apt/preferences.d/nvidia-driver": b"Package: x"})
    assert read_deb(build(pinning, tmp_path)).preferences


@needs_apt
def test_a_damaged_deb_is_an_error(tmp_path: Path) -> None:
    path = build(Deb("libbig", files={"/usr/lib/libbig.so": bytes(range(256)) * 4096}), tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 600])
    with pytest.raises(GoldsmithError, match=r"readable|failed"):
        read_deb(path)
    path.write_text("not a deb")
    with pytest.raises(GoldsmithError, match=r"readable|failed"):
        read_deb(path)
