"""The local pool: an apt repository of exactly what the locks name, so that builds and nodes need no internet.

    STATE/pool/pool/AB/SHA256/…  debs by their content, so that images share them; those of old locks stay until
                                 `pool prune`
    STATE/pool/dists/IMAGE       a link to the index of that image's present lock; the swap of the link is atomic
    STATE/pool/goldsmith.asc     the public key that the indexes are signed with
    STATE/pool-key, pool-db      the secret key (0700), apt-ftparchive's database

A run that is killed leaves the old link, hence the old, complete index.
Facts: apt-ftparchive(1), the generate and release commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from goldsmith import atomic
from goldsmith.errors import GoldsmithError
from goldsmith.lock.fetch import file_sha256
from goldsmith.lock.index import read_stanzas
from goldsmith.lock.published import Published
from goldsmith.lock.signing import Key, pool_key, sign
from goldsmith.model.lock import Lock, LockedPackage
from goldsmith.model.lock import Pool as PoolModel
from goldsmith.process import run

ORIGIN = "goldsmith"
PUBLIC_KEY = "goldsmith.asc"


@dataclass(frozen=True)
class Pool:
    """The pool of a project's state folder. Who writes to it holds `lock_file` (goldsmith.holding)."""

    state: Path

    @property
    def root(self) -> Path:
        return self.state / "pool"

    @property
    def lock_file(self) -> Path:
        return self.state / "pool.lock"

    @property
    def incoming(self) -> Path:
        """Where debs are downloaded to; on the pool's file system, so that a rename puts them in place."""
        return self.state / "pool-incoming"

    def key(self) -> Key:
        return pool_key(self.state / "pool-key")

    def model(self, image: str) -> PoolModel:
        """What a lock says of the pool."""
        key = self.key()
        return PoolModel(origin=ORIGIN, suite=image, fingerprint=key.fingerprint, key=key.public)

    def path(self, package: LockedPackage) -> Path:
        """Where a locked deb lies: two repositories may have one file name with different content."""
        return self.root / _place(package)

    def lacking(self, packages: Iterable[LockedPackage], *, verify: bool = False) -> list[LockedPackage]:
        """The packages whose deb isn't here, or is another than the lock's: by size, with `verify` by sha256."""
        return [one for one in packages if not self._good(one, verify)]

    def _good(self, package: LockedPackage, verify: bool) -> bool:
        path = self.path(package)
        try:
            return path.stat().st_size == package.size and (not verify or file_sha256(path) == package.sha256)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise GoldsmithError(f"can't be read: {error.strerror}", where=str(path)) from None

    def index(self, image: str) -> Published:
        return Published(self.root / "dists", self.state / "pool-published", image)

    def faults(self, lock: Lock) -> list[str]:
        """What keeps the published index from being this lock's, signed with this pool's key; empty if nothing."""
        faults = self.index(lock.image).faults(lock.digest)
        path = self.root / PUBLIC_KEY
        if not path.is_file() or path.read_bytes() != self.key().public.encode():
            faults.append(f"{path} isn't this pool's key")
        return faults

    def publish(self, lock: Lock) -> None:
        """Make the image's index list exactly the lock's packages, sign it, and swap it in.

        Every deb must be here. Raises GoldsmithError, the old index untouched.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        (self.state / "pool-db").mkdir(exist_ok=True)
        key = self.key()
        atomic.write(self.root / PUBLIC_KEY, key.public)

        def make(folder: Path) -> None:
            self._index(lock, folder)
            self._release(lock, folder)
            sign(key, folder / "Release")

        self.index(lock.image).publish(lock.digest, make)

    def _index(self, lock: Lock, folder: Path) -> None:
        """Packages, Packages.gz and Packages.xz. Known debs come from the database: only new ones are read."""
        binary = folder / "main" / f"binary-{lock.architecture}"
        binary.mkdir(parents=True)
        names = folder / "files"
        names.write_text("".join(f"{_place(one)}\n" for one in _by_name(lock)))
        relative = binary.relative_to(self.root)
        configuration = folder / "ftparchive.conf"
        configuration.write_text(
            f"""
            Dir {{ ArchiveDir "."; CacheDir "../pool-db"; FileListDir "."; }};
            Default {{ Packages::Compress ". gzip xz"; FileMode 0644; }};
            BinDirectory "{relative}" {{
                Packages "{relative}/Packages";
                FileList "{names.relative_to(self.root)}";
                BinCacheDB "{lock.architecture}.db";
            }};
            """
        )
        command: list[str | Path] = ["apt-ftparchive", "-q", *_LEAN, "generate", configuration]
        done = run(command, timeout=900, what="index the pool", cwd=self.root, check=False)
        if done.code != 0 or _listed(binary / "Packages") != _locked(lock):
            # a database that a killed run left broken, or that missed a change: everything is read anew
            (self.state / "pool-db" / f"{lock.architecture}.db").unlink(missing_ok=True)
            run(command, timeout=900, what="index the pool", cwd=self.root)
        names.unlink()
        configuration.unlink()
        if wrong := _listed(binary / "Packages") ^ _locked(lock):
            raise GoldsmithError(
                f"the pool isn't what the lock says: {', '.join(sorted({one[0] for one in wrong})[:8])}",
                where=str(self.root),
                hint=f"goldsmith pool fill images/{lock.image} --verify",
            )

    def _release(self, lock: Lock, folder: Path) -> None:
        fields = {
            "Origin": ORIGIN,
            "Label": ORIGIN,
            "Suite": lock.image,
            "Codename": lock.image,
            "Architectures": lock.architecture,
            "Components": "main",
            "Description": f"exactly the packages of image {lock.image}",
        }
        options = [f"-oAPT::FTPArchive::Release::{name}={value}" for name, value in fields.items()]
        done = run(
            ["apt-ftparchive", "-q", *_LEAN, *options, "release", folder],
            timeout=60,
            what="index the pool",
        )
        (folder / "Release").write_text(done.out)


# Contents: listing every deb's files took 18 s of 19 for 268 packages, and nobody asked for the list.
# AlwaysStat: without it the database is believed though a deb has been replaced by another of the same name.
_LEAN = [
    *(f"-oAPT::FTPArchive::{name}=false" for name in ("MD5", "SHA1", "SHA512", "Contents")),
    "-oAPT::FTPArchive::AlwaysStat=true",
]


def _place(package: LockedPackage) -> str:
    """Below the pool's root. The name and version are for people's eyes; an epoch isn't for file names."""
    version = package.version.partition(":")[2] or package.version
    name = f"{package.name}_{version}_{package.architecture}.deb"
    if not re.fullmatch(r"[A-Za-z0-9+.~_-]+", name):
        raise GoldsmithError(f"a deb can't be kept as {name}", where=f"package {package.name}")
    return f"pool/{package.sha256[:2]}/{package.sha256}/{name}"


def _locked(lock: Lock) -> set[tuple[str, str, str, str]]:
    return {(one.name, one.version, one.architecture, one.sha256) for one in lock.packages.values()}


def _listed(packages: Path) -> set[tuple[str, str, str, str]]:
    """name, version, architecture and sha256 of every package that an index lists."""
    if not packages.is_file():
        return set()
    return {
        (one["Package"], one["Version"], one["Architecture"], one["SHA256"])
        for one in read_stanzas(packages.read_text())
    }


def _by_name(lock: Lock) -> list[LockedPackage]:
    return sorted(lock.packages.values(), key=lambda one: one.name)
