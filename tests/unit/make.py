"""Small locks, nodes and probes for tests."""

from __future__ import annotations

from typing import Any

from goldsmith.model.lock import Lock, LockedPackage
from goldsmith.model.probe import Probe, parse_probe

PACKAGES = {
    "libnccl2": ("2.22.3-1-1", "nvidia-nccl", "nccl"),
    "python3-torch": ("2.6.0+dfsg-7", "pytorch", "pytorch"),
    "chrony": ("4.6.1-3", "chrony", None),
}


def lock(packages: dict[str, tuple[str, str, str | None]] | None = None, **files: Any) -> Lock:
    """A lock of these packages: name → version, source, family. files: package → LockedPackage.files."""
    return Lock.model_validate({
        "schema": 1, "image": "lab", "image_digest": "0" * 64, "distribution": "debian", "release": "trixie",
        "architecture": "amd64", "created": "2026-11-30T00:00:00Z", "tools": {},
        "repositories": {"base": {"releases": {}}},
        "pool": {"origin": "goldsmith", "suite": "lab", "fingerprint": "A" * 40, "key": "a public key\n"},
        "packages": {
            name: LockedPackage(
                name=name, version=version, architecture="amd64", source=source, sha256="0" * 64, size=1,
                filename=f"pool/{name}.deb", repository="base", origin="Debian:13.2/stable", why="base", family=family,
                files=files.get(name.replace("-", "_"), {}),
            ).model_dump()
            for name, (version, source, family) in (packages or PACKAGES).items()
        },
    })  # fmt: skip


def probe(node: str = "node01", *, container: bool = True, root: bool = True, **parts: Any) -> Probe:
    """A probe with these parts' facts; a string instead of facts is that part's error."""
    import json

    told = {
        name: {"seconds": 0.0, **({"error": facts} if isinstance(facts, str) else {"facts": facts})}
        for name, facts in parts.items()
    }
    document = {
        "schema": 1, "node": node, "started": "2026-11-30T00:00:00Z", "seconds": 0.1, "python": "3.13.5",
        "root": root, "container": container, "virtualization": "systemd-nspawn", "target": "live", "parts": told,
    }  # fmt: skip
    return parse_probe(node, json.dumps(document))


def package(version: str, *, held: bool = False, status: str = "ii") -> dict[str, Any]:
    """A package as the probe's part `packages` tells it."""
    return {"version": version, "arch": "amd64", "status": status, "held": held, "since": "2026-11-30T10:00:00Z"}
