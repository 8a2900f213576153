"""The signature over SHA256SUMS: ssh-keygen -Y sign and -Y verify (OpenSSH 8.2). One key type that every site has
already, no web of trust, no service to ask.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from goldsmith import atomic, process
from goldsmith.errors import GoldsmithError
from goldsmith.image.sums import SIGNATURE, SUMS

# What a signature is for: one made with the same key for git or a mail isn't one of an image (ssh-keygen(1), -n).
NAMESPACE = "goldsmith-image"
TOOLS = {"ssh-keygen": "openssh-client"}
SECONDS = 60.0  # a key in an agent or a token may wait for a touch
LAB_SIGNER = "goldsmith-lab"


def sign(folder: Path, key: Path) -> None:
    """Write SHA256SUMS.sig beside SHA256SUMS. key: a private key, or a public one whose private half an agent has.

    Raises GoldsmithError, also for a key with a passphrase that no agent holds: nobody is asked.
    """
    require_key(key)
    (folder / SIGNATURE).unlink(missing_ok=True)  # ssh-keygen asks before it writes over one
    process.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", key.resolve(), "-n", NAMESPACE, folder / SUMS],
        timeout=SECONDS,
        what=f"sign {SUMS}",
        env={"SSH_ASKPASS_REQUIRE": "never"},
        hint="a key with a passphrase must be in ssh-agent, and its public half is what --sign names",
    )
    (folder / SIGNATURE).chmod(0o644)


def require_key(key: Path) -> None:
    """The key is there. Raises GoldsmithError."""
    if not key.is_file():
        raise GoldsmithError("there is no such key", where=str(key), hint="make one: ssh-keygen -t ed25519 -f KEY")


def signer(sums: bytes, signature: Path, allowed: Path) -> str | None:
    """Who signed these sums, by the name that `allowed` (ssh-keygen(1), ALLOWED SIGNERS) has for the key; None if
    nobody in there did, or what was signed is something else.
    """
    found = process.run(
        ["ssh-keygen", "-Y", "find-principals", "-s", signature, "-f", allowed],
        timeout=SECONDS,
        what="look for the signer",
        check=False,
    )
    if found.code != 0 or not found.out.strip():
        return None
    # a line of allowed_signers may name several: any of them will do
    name = re.split(r"[,\n]", found.out.strip())[0]
    done = process.run(
        ["ssh-keygen", "-Y", "verify", "-f", allowed, "-I", name, "-n", NAMESPACE, "-s", signature],
        timeout=SECONDS,
        what="verify the signature",
        check=False,
        stdin=sums.decode(errors="replace"),
    )
    return name if done.code == 0 else None


def signed_by(folder: Path, key: Path) -> bool:
    """The signature in `folder` is this key's, over the SHA256SUMS that is there."""
    asked = process.run(["ssh-keygen", "-l", "-f", key], timeout=SECONDS, what="read the key", check=False)
    said = process.run(
        ["ssh-keygen", "-Y", "check-novalidate", "-n", NAMESPACE, "-s", folder / SIGNATURE],
        timeout=SECONDS,
        what="read the signature",
        check=False,
        stdin=(folder / SUMS).read_text(errors="replace"),
    )
    # "256 SHA256:… comment (ED25519)"; 'Good "…" signature with ED25519 key SHA256:…'
    fingerprint = asked.out.split()[1] if asked.code == 0 and len(asked.out.split()) > 1 else None
    return said.code == 0 and fingerprint is not None and fingerprint in said.out.split()


def lab_key(state: Path) -> Path:
    """A private key of this machine's own, for labs; made on first use, with an allowed_signers file beside it."""
    folder = state / "signing"
    key, allowed = folder / "key", folder / "allowed_signers"
    if not key.is_file():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        making = folder / f".key.{os.getpid()}"
        for left in (making, making.with_name(f"{making.name}.pub")):
            left.unlink(missing_ok=True)
        process.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", LAB_SIGNER, "-f", making],
            timeout=SECONDS,
            what="make the lab's signing key",
        )
        public = making.with_name(f"{making.name}.pub")
        public.rename(folder / "key.pub")
        making.rename(key)  # last, and 0600 as ssh-keygen made it
    if not allowed.is_file():
        public_key = " ".join((folder / "key.pub").read_text().split()[:2])
        atomic.write(allowed, f'{LAB_SIGNER} namespaces="{NAMESPACE}" {public_key}\n')
    return key
