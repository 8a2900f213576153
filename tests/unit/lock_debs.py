"""Tiny real debs, and a signed repository of them, for the tests of goldsmith.lock. Nothing is fetched from afar."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from goldsmith.lock.signing import pool_key, sign
from goldsmith.lock.sources import Source
from goldsmith.process import run
from tests.needs import APT, needs

needs_apt = needs(*APT)


@dataclass(frozen=True)
class Deb:
    name: str
    version: str = "1.0-1"
    source: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


def build(deb: Deb, folder: Path) -> Path:
    """The deb as a file in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary)
        tree.chmod(0o755)
        (tree / "DEBIAN").mkdir(mode=0o755)
        fields = {
            "Package": deb.name, "Version": deb.version, "Architecture": "amd64", "Maintainer": "A <a@test.invalid>",
            **({"Source": deb.source} if deb.source else {}), **deb.fields, "Description": "a test's package",
        }  # fmt: skip
        (tree / "DEBIAN/control").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))
        for name, content in deb.files.items():
            path = tree / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if name.startswith("DEBIAN/"):  # a maintainer script
                path.chmod(0o755)
        path = folder / f"{deb.name}_{deb.version.replace(':', '%3a')}_amd64.deb"
        run(
            ["dpkg-deb", "-Zgzip", "--root-owner-group", "--build", tree, path],
            timeout=60,
            what="build a test's package",
            # the same package twice is the same file
            env={"SOURCE_DATE_EPOCH": "1764547200"},
        )
    return path


class Repository:
    """A distribution in small: suite trixie, component main, signed with a key of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root / "mirror"
        self.key = pool_key(root / "mirror-key")
        self.keyring = self.root / "keyring.asc"
        self.root.mkdir(parents=True)
        self.keyring.write_text(self.key.public)

    def publish(self, debs: list[Deb]) -> None:
        """Serve exactly these from now on."""
        shutil.rmtree(self.root / "pool", ignore_errors=True)
        for deb in debs:
            build(deb, self.root / "pool/main" / deb.name[0] / deb.name)
        binary = self.root / "dists/trixie/main/binary-amd64"
        binary.mkdir(parents=True, exist_ok=True)
        index = run(["apt-ftparchive", "packages", "pool"], timeout=60, what="index", cwd=self.root).out
        (binary / "Packages").write_text(index)
        fields = {"Label": "Debian", "Version": "13.2", "Suite": "stable", "Codename": "trixie", "Components": "main",
                  "Architectures": "amd64"}  # fmt: skip
        options = [f"-oAPT::FTPArchive::Release::{name}={value}" for name, value in fields.items()]
        release = self.root / "dists/trixie/Release"
        release.unlink(missing_ok=True)
        release.write_text(run(["apt-ftparchive", *options, "release", release.parent], timeout=60, what="index").out)
        sign(self.key, release)

    def source(self) -> Source:
        return Source(f"file:{self.root}", "trixie", ("main",), str(self.keyring))
