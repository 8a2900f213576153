"""Whether an artifact is what was built and signed: what `goldsmith verify` looks at, and what it found.

Nothing in the folder is trusted: whose signature counts comes from outside of it, and no link in it is followed. What
can't be told is UNKNOWN, never OK: an artifact that nobody signed, or whose lock isn't at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldsmith.errors import GoldsmithError
from goldsmith.image import oci, sbom, sums
from goldsmith.image.artifact import HINT, MANIFEST, parse_manifest
from goldsmith.image.components import entries
from goldsmith.image.signature import signer
from goldsmith.model.finding import Severity, worst
from goldsmith.model.lock import Lock, parse_lock


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. name: signature, files, manifest, sbom or lock."""

    name: str
    severity: Severity
    text: str


def verify(
    folder: Path, allowed: Path | None = None, lock: Path | None = None, images: Path | None = None
) -> list[Check]:
    """Every check of the artifact in `folder`, in a fixed order; at least one of each name that could be made.

    allowed: an allowed_signers file. lock: the image.lock to compare with; otherwise the one of the artifact's image
    in `images`, a project's images/. Raises GoldsmithError if there is no artifact at all.
    """
    if not any((folder / name).is_file() for name in (MANIFEST, sums.SUMS)):
        raise GoldsmithError("there is no built image here", where=str(folder), hint=HINT)
    signed = _read(folder, sums.SUMS)
    listed, wrong = _listed(signed)
    checks = [_signature(folder, signed, allowed), *(wrong or _files(folder, listed))]
    content = _read(folder, MANIFEST)
    try:
        manifest = parse_manifest(content or b"", MANIFEST)
    except GoldsmithError as error:
        what = error.what if content is not None else "missing"
        return [*checks, Check("manifest", Severity.FAIL, f"{MANIFEST}: {what}")]
    made = ", ".join(manifest["formats"])
    checks.append(Check("manifest", Severity.OK, f"image {manifest['image']} of {manifest['created']}: {made}"))
    return [*checks, *_formats(listed, manifest), *_sboms(folder, manifest), *_lock(manifest, lock, images)]


def severity(checks: list[Check]) -> Severity:
    """Of the whole."""
    return worst([one.severity for one in checks])


def _signature(folder: Path, signed: bytes | None, allowed: Path | None) -> Check:
    if signed is None:
        return Check("signature", Severity.FAIL, f"{sums.SUMS} is missing: nothing says what should be here")
    if _read(folder, sums.SIGNATURE) is None:
        return Check(
            "signature", Severity.UNKNOWN, "not signed: nobody says that this is theirs (goldsmith build --sign)"
        )
    if allowed is None:
        hint = "name whom you trust: --allowed-signers FILE"
        return Check("signature", Severity.UNKNOWN, f"signed, but nothing says whose signature counts; {hint}")
    if not allowed.is_file():
        raise GoldsmithError("there is no such file", where=str(allowed), hint="see ssh-keygen(1), ALLOWED SIGNERS")
    if name := signer(signed, folder / sums.SIGNATURE, allowed):
        return Check("signature", Severity.OK, f"signed by {name}")
    return Check("signature", Severity.FAIL, f"not a signature over this {sums.SUMS} by anyone in {allowed}")


def _listed(signed: bytes | None) -> tuple[dict[str, str], list[Check]]:
    """What SHA256SUMS says, and why not."""
    try:
        return sums.parse(signed or b"", sums.SUMS), []
    except GoldsmithError as error:
        return {}, [Check("files", Severity.FAIL, f"{error.where}: {error.what}")]


def _files(folder: Path, listed: dict[str, str]) -> list[Check]:
    wrong = [Check("files", Severity.FAIL, f"{_shown(one.path)}: {one.what}") for one in sums.faults(folder, listed)]
    return wrong or [Check("files", Severity.OK, f"{len(listed)} files as {sums.SUMS} says")]


def _formats(listed: dict[str, str], manifest: dict[str, Any]) -> Iterator[Check]:
    """Formats of the manifest that aren't here, or are other ones: sums alone would not miss them."""
    for name, one in manifest["formats"].items():
        inner = {"oci": oci.blob_path(one["sha256"])}.get(name)
        path = f"{one['file']}/{inner}" if inner else one["file"]
        if listed.get(path) != one["sha256"]:
            yield Check("manifest", Severity.FAIL, f"{name}: {_shown(path)} is not the one that was built, or missing")


def _shown(path: str) -> str:
    """A foreign file's name, without what a terminal would act on."""
    return path if path.isprintable() else ascii(path)


def _sboms(folder: Path, manifest: dict[str, Any]) -> Iterator[Check]:
    for file in sbom.DOCUMENTS:
        content = _read(folder, file)
        try:
            wrong = sbom.differences(file, content, manifest) if content is not None else ["missing"]
        except GoldsmithError as error:
            wrong = [error.what]
        yield from (Check("sbom", Severity.FAIL, f"{file}: {one}") for one in wrong[:20])
        if len(wrong) > 20:
            yield Check("sbom", Severity.FAIL, f"{file}: and {len(wrong) - 20} more")
        if not wrong:
            count = len(list(entries(manifest)))
            yield Check("sbom", Severity.OK, f"{file} lists the manifest's {count} packages and wheels")


def _lock(manifest: dict[str, Any], path: Path | None, images: Path | None) -> Iterator[Check]:
    if path is None:
        path = images / manifest["image"] / "image.lock" if images else None
        if path is None or not path.is_file():
            where = path or f"images/{manifest['image']}/image.lock"
            yield Check("lock", Severity.UNKNOWN, f"not compared with its lock: there is no {where} (--lock FILE)")
            return
    try:
        lock = parse_lock(path.read_bytes(), str(path))
    except OSError as error:
        raise GoldsmithError(f"can't be read: {error.strerror}", where=str(path)) from None
    wrong = list(_from_lock(manifest, lock))
    yield from (Check("lock", Severity.FAIL, f"{one}, says {path}") for one in wrong[:20])
    if not wrong:
        yield Check("lock", Severity.OK, f"{len(lock.packages)} packages as in {path}")


def _from_lock(manifest: dict[str, Any], lock: Lock) -> Iterator[str]:
    """Where the manifest isn't this lock's, one sentence each."""
    if manifest["lock"]["digest"] != lock.digest:
        yield f"built from lock {manifest['lock']['digest'][:12]}, and the lock is {lock.digest[:12]}"
    have = {name: (one["version"], one["sha256"]) for name, one in manifest["packages"].items()}
    want = {name: (one.version, one.sha256) for name, one in lock.packages.items()}
    for name in sorted(have.keys() | want.keys()):
        if have.get(name) != want.get(name):
            found, locked = (one[name][0] if name in one else "none" for one in (have, want))
            yield f"package {name} is {found}, and {locked} is locked"


def _read(folder: Path, name: str) -> bytes | None:
    path = folder / name
    try:
        return None if path.is_symlink() or not path.is_file() else path.read_bytes()
    except OSError as error:
        raise GoldsmithError(f"can't be read: {error.strerror}", where=str(path)) from None
