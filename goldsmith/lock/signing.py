"""The pool's own key: made on first use, kept in STATE/pool-key, used through a GnuPG home that lives seconds.

A home that stays would leave an agent running, and its sockets' path may be too long for a deep checkout.
Facts: gpg(1) in batch mode; ed25519 with SHA-512 is accepted by apt 2.x (gpgv) and apt 3.x (sqv).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from goldsmith import atomic
from goldsmith.errors import GoldsmithError
from goldsmith.process import run

USER = "goldsmith pool"
_SECRET, _PUBLIC = "secret.asc", "public.asc"


@dataclass(frozen=True)
class Key:
    """fingerprint: upper-case hex. public: the armored public key."""

    folder: Path
    fingerprint: str
    public: str


def pool_key(folder: Path) -> Key:
    """The key in `folder`, made if there is none yet. Raises GoldsmithError where gpg can't."""
    if not (folder / _PUBLIC).is_file():  # written last
        _make(folder)
    public = (folder / _PUBLIC).read_text()
    with gpg_home(folder) as gpg:
        return Key(folder, _fingerprint(gpg), public)


def sign(key: Key, release: Path) -> None:
    """Write InRelease and Release.gpg beside a Release file."""
    with gpg_home(key.folder) as gpg:
        common = [
            *gpg,
            "--local-user",
            key.fingerprint,
            "--digest-algo",
            "SHA512",
            "--armor",
            "--yes",
            "--output",
        ]
        for name, how in (("InRelease", "--clear-sign"), ("Release.gpg", "--detach-sign")):
            path = release.with_name(name)
            run([*common, path, how, release], timeout=60, what="sign the pool")
            path.chmod(0o644)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise GoldsmithError(f"can't be made: {error.strerror}", where=str(folder)) from None
    with gpg_home(None) as gpg:
        what = "make the pool's key"
        quick = ["--passphrase", "", "--pinentry-mode", "loopback"]
        run([*gpg, *quick, "--quick-gen-key", USER, "ed25519", "sign", "never"], timeout=300, what=what)
        secret = run([*gpg, *quick, "--armor", "--export-secret-keys"], timeout=60, what=what).out
        public = run([*gpg, "--armor", "--export"], timeout=60, what=what).out
    atomic.write(folder / _SECRET, secret, mode=0o600)
    atomic.write(folder / _PUBLIC, public, mode=0o644)


@contextmanager
def gpg_home(folder: Path | None) -> Iterator[list[str]]:
    """The gpg command line of a home that holds the key of `folder`, or nothing; its agent ends with the block."""
    with tempfile.TemporaryDirectory(prefix="gs-gpg-") as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--no-tty", "--quiet", "--no-auto-check-trustdb"]
        try:
            if folder:
                run([*gpg, "--import", folder / _SECRET], timeout=60, what="read the pool's key")
            yield gpg
        finally:
            run(
                ["gpgconf", "--homedir", home, "--kill", "all"],
                timeout=30,
                what="end gpg's agent",
                check=False,
            )


def _fingerprint(gpg: list[str]) -> str:
    listing = run([*gpg, "--with-colons", "--list-secret-keys"], timeout=60, what="read the pool's key").out
    match = re.search(r"^fpr:+([0-9A-F]{40,64}):", listing, re.MULTILINE)
    if not match:
        raise GoldsmithError("gpg shows no key", where="read the pool's key")
    return match[1]
