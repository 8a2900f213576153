"""What is in a deb: the shared libraries a probe will look for on nodes, with their sizes and hashes; the systemd
units that change with it; whether it brings apt preferences.

dpkg's own database can't vouch for them: its md5sums lie beside the files and are rewritten with them.
Facts: dpkg-deb(1), --fsys-tarfile; /lib is a link to /usr/lib on every Debian since 12 (usrmerge).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from goldsmith.errors import GoldsmithError
from goldsmith.model.lock import LockedFile
from goldsmith.process import kill_group

LIBRARY = re.compile(r"lib[^/]*\.so[^/]*$")
UNIT = re.compile(r"/usr/lib/systemd/system/([^/]+\.(service|socket|timer))$")
PREFERENCES = re.compile(r"/etc/apt/preferences\.d/[^/]+$")
_MERGED = re.compile(r"/(bin|sbin|lib|lib32|lib64|libx32)/")


@dataclass(frozen=True)
class Contents:
    """libraries: path on the node → size and sha256, or target, of all that is named lib*.so*. units: names of
    systemd units. preferences: it brings apt preferences (NVIDIA's nvidia-driver-pinning-*)."""

    libraries: dict[str, LockedFile]
    units: tuple[str, ...]
    preferences: bool


def read_deb(deb: Path, *, timeout: float = 300) -> Contents:
    """What is in a deb. timeout: seconds. Raises GoldsmithError for a damaged one."""
    found: dict[str, LockedFile] = {}
    units: set[str] = set()
    preferences = False
    try:
        with _tar_of(deb, timeout) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                path = node_path(member.name)
                preferences |= bool(PREFERENCES.match(path))
                if match := UNIT.match(path):
                    units.add(match[1])
                if member.issym() and LIBRARY.search(path):
                    found[path] = LockedFile(link=member.linkname)
                if member.isfile() and LIBRARY.search(path):
                    content = tar.extractfile(member)
                    if content is not None:
                        digest = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
                        found[path] = LockedFile(size=member.size, sha256=digest)
    except (tarfile.TarError, EOFError) as error:
        raise GoldsmithError(f"not a readable deb: {error}", where=str(deb)) from None
    return Contents(dict(sorted(found.items())), tuple(sorted(units)), preferences)


def node_path(member: str) -> str:
    """`./lib/x86_64-linux-gnu/libx.so.1` → `/usr/lib/x86_64-linux-gnu/libx.so.1`."""
    path = "/" + member.removeprefix("./").lstrip("/")
    return f"/usr{path}" if _MERGED.match(path) else path


@contextlib.contextmanager
def _tar_of(deb: Path, timeout: float) -> Iterator[IO[bytes]]:
    """The deb's file tree as a tar stream. goldsmith.process.run gives text; this is its binary sister."""
    try:
        process = subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(deb)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise GoldsmithError("dpkg-deb isn't installed", where=str(deb), hint="apt-get install dpkg") from None
    alarm = threading.Timer(timeout, kill_group, [process])
    alarm.daemon = True
    alarm.start()
    try:
        assert process.stdout is not None
        yield process.stdout
        process.stdout.read()  # the padding after the end of the archive
        if process.wait(timeout) != 0:
            raise GoldsmithError(f"dpkg-deb failed with exit code {process.returncode}", where=str(deb))
    finally:
        alarm.cancel()
        if process.poll() is None:
            kill_group(process)  # type: ignore[arg-type]
        if process.stdout:
            process.stdout.close()
