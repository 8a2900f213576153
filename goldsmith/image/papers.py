"""An artifact made in a staging folder: the formats of a packed tree, the manifest, SBOMs, sums and signature."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from goldsmith import process
from goldsmith.image import formats, sbom, signature, sums
from goldsmith.image.artifact import MANIFEST, Artifact
from goldsmith.image.components import entries
from goldsmith.image.formats import Made
from goldsmith.image.manifest import with_formats
from goldsmith.image.pack import Packed
from goldsmith.image.tools import Tools
from goldsmith.model.lock import Lock
from goldsmith.progress import step

# This machine's own: another one of these may compress the same tree to other bytes.
_HOST = ("tar", "zstd")


def write_formats(
    names: Iterable[str],
    packed: Path,
    layer: Packed,
    lock: Lock,
    folder: Path,
    *,
    parameters: Sequence[str] = (),
    tools: Tools,
) -> dict[str, Made]:
    """Write the formats into the staging folder, of the packed tree beside or in it.

    parameters: of the kernel's command line.
    """
    made = {}
    for name in names:
        file = formats.FORMATS[name].file
        quiet = name == "rootfs"  # a link
        with nullcontext() if quiet else step(f"make {file}") as now:
            made[name] = formats.make(name, packed, layer, lock, folder, parameters=parameters, tools=tools)
            if now:
                now.result = f"{made[name].size / 1e6:.0f} MB"
    return made


def write_papers(
    folder: Path, manifest: Mapping[str, Any], made: Mapping[str, Made], tools: Mapping[str, str], key: Path | None
) -> None:
    """Write manifest.json, the SBOMs, SHA256SUMS and, with a key, its signature, over what is in the folder."""
    whole = with_formats(manifest, made, tools)
    _write(folder / MANIFEST, json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    with step("write the SBOMs") as now:
        for file, kind in sbom.DOCUMENTS.items():
            _write(folder / file, kind.text(whole))
        now.result = f"{len(list(entries(whole)))} packages and wheels"
    with step(f"{'sign' if key else 'write'} {sums.SUMS}"):
        _write(folder / sums.SUMS, sums.text(folder))
        if key:
            signature.sign(folder, key)


def papers_of(artifact: Artifact) -> list[str]:
    """What an artifact is, a line a format, and whether it is signed."""
    lines = [
        f"{artifact.folder / one.file}: {one.size / 1e6:.0f} MB, sha256 {one.sha256}"
        for one in artifact.formats.values()
    ]
    unsigned = "not signed: --sign KEY does; `goldsmith verify` says UNKNOWN until then"
    return [*lines, f"{sums.SUMS}: {'signed' if artifact.signed else unsigned}"]


def versions(names: Iterable[str], tools: Tools, ask: Callable[[str], str] | None = None) -> dict[str, str]:
    """What writes these formats, in which version: this machine's, packages of the tools tree. ask: for tests."""
    used = {package: tools.version(package) for package in formats.packages(names)}
    tree = {"images/tools": tools.lock} if used else {}
    return {**{tool: (ask or _ask)(tool) for tool in _HOST}, **used, **tree}


def _ask(tool: str) -> str:
    said = process.run([tool, "--version"], timeout=20, what=f"ask {tool} for its version", check=False).out
    return said.strip().splitlines()[0].strip("* ") if said.strip() else "unknown"


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)  # whatever our umask is
