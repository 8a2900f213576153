"""Is the CUDA runtime the locked one, and the only one?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from goldsmith import Finding, Lock, Node, Severity, upstream

# Debian: libcudart12 12.4.127~12.4.1-2; NVIDIA: cuda-cudart-12-4 12.4.127-1
RUNTIME = re.compile(r"libcudart\d+(\.\d+)?|cuda-cudart-\d+-\d+")


def check(node: Node, lock: Lock, facts: Mapping[str, Any]) -> Iterator[Finding]:
    expected = runtime_versions(lock)
    versions = sorted({one["version"] for one in facts["libraries"]})
    if not expected:
        return
    common: dict[str, Any] = {
        "node": node.name, "fact": "libcudart", "expected": " and ".join(expected),
        "source": f"images/{lock.image}/image.lock",
        "evidence": tuple(one["path"] for one in facts["libraries"]) or ("no libcudart.so.* found",),
    }  # fmt: skip
    missing = [one for one in expected if one not in versions]
    strange = [one for one in versions if one not in expected]
    if missing:
        yield Finding(
            check="cuda.library-matches-lock", severity=Severity.FAIL, actual=" and ".join(versions) or "none",
            remedy="goldsmith deploy {site} --limit {nodes}", **common,
        )  # fmt: skip
    elif strange:
        yield Finding(
            check="cuda.one-library", severity=Severity.WARN, actual=" and ".join(versions),
            remedy="remove the runtime that isn't the lock's, or lock it", **common,
        )  # fmt: skip
    yield from _loader(node, lock, expected, facts)


def _loader(node: Node, lock: Lock, expected: list[str], facts: Mapping[str, Any]) -> Iterator[Finding]:
    """The file that the loader takes is one of the lock's: the version that it's named after isn't enough."""
    common: dict[str, Any] = {
        "node": node.name, "check": "cuda.library-matches-lock", "source": f"images/{lock.image}/image.lock",
        "expected": f"{' and '.join(expected)} of the locked package",
    }  # fmt: skip
    if facts["loader_error"]:
        yield Finding(severity=Severity.UNKNOWN, fact="libcudart", actual="the loader's cache can't be read",
                      evidence=(facts["loader_error"],), remedy="on {nodes}: ldconfig", **common)  # fmt: skip
        return
    files = {path: file for one in lock.family("cuda") for path, file in one.files.items() if "/libcudart.so" in path}
    versions = {one["path"]: one["version"] for one in facts["libraries"]}
    for soname, path in sorted(facts["loader"].items()):
        if (path in files and files[path].link is None) or (not files and versions.get(path) in expected):
            continue
        yield Finding(
            severity=Severity.FAIL, fact=soname, evidence=("ldconfig -p",),
            actual=f"{path}, of no locked package, and the loader takes it",
            remedy="goldsmith deploy {site} --limit {nodes}" if path in files
                   else "on {nodes}: move it away, or what leads to it in /etc/ld.so.conf.d; then ldconfig", **common,
        )  # fmt: skip


def runtime_versions(lock: Lock) -> list[str]:
    """The versions that the locked runtimes' file names carry; Debian adds the toolkit's after a tilde."""
    found = {upstream(one.version).split("~")[0] for one in lock.family("cuda") if RUNTIME.fullmatch(one.name)}
    return sorted(found)
