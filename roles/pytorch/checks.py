"""Is PyTorch the locked version, and does it load the NCCL that is meant for it?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from goldsmith import Finding, Lock, Node, Severity, upstream

PACKAGE = re.compile(r"python3-torch(-cuda)?")


def check(node: Node, lock: Lock, facts: Mapping[str, Any]) -> Iterator[Finding]:
    locked = locked_torch(lock)
    for environment in facts["environments"]:
        if locked and environment["path"].startswith("/usr/lib/python3"):
            yield from _version(node, lock, locked, environment)
        yield from _nccl(node, lock, environment)


def locked_torch(lock: Lock) -> tuple[str, str] | None:
    """The locked package (with its version) and the version that PyTorch has in it; None without one."""
    for package in lock.family("pytorch"):
        # 2.6.0+dfsg-7 is 2.6.0+debian in version.py: the numbers count
        match = re.match(r"\d+\.\d+\.\d+", upstream(package.version))
        if PACKAGE.fullmatch(package.name) and match:
            return f"{package.name} {package.version}", match.group()
    return None


def _version(node: Node, lock: Lock, locked: tuple[str, str], environment: Mapping[str, Any]) -> Iterator[Finding]:
    package, expected = locked
    actual = environment["version"]
    if actual is not None and re.split(r"[+]", actual)[0] == expected:
        return
    yield Finding(
        node=node.name, check="pytorch.version-matches-lock", severity=Severity.FAIL, fact=environment["path"],
        expected=f"PyTorch {expected} of {package}", actual=f"PyTorch {actual or 'of unknown version'}",
        source=f"images/{lock.image}/image.lock", evidence=(f"{environment['path']}/torch/version.py",),
        remedy="goldsmith deploy {site} --limit {nodes}",
    )  # fmt: skip


def _nccl(node: Node, lock: Lock, environment: Mapping[str, Any]) -> Iterator[Finding]:
    note, path = environment["nccl_note"], environment["nccl"]
    wheels = environment["nccl_wheels"]
    own = environment["path"] + "/"
    expected = "its own wheel's NCCL" if wheels else "the system's locked NCCL"
    if path is None:
        wrong = note if "isn't found" in note else ""
    elif path.startswith(own):
        wrong = ""
    else:
        # found first on the path of a wheel that brought its own: undefined symbols, or another version
        # (pytorch#119072, verl#6621)
        system = {file for package in lock.family("nccl") for file in package.files}
        system |= {f"/usr{file}" for file in system if not file.startswith("/usr/")}
        allowed = not wheels and (not system or path in system)
        wrong = "" if allowed else path
    if len(wheels) > 1:
        wrong = wrong or "several NCCL wheels in one environment"
    if wrong:
        yield Finding(
            node=node.name, check="pytorch.nccl-loaded", severity=Severity.FAIL, fact=environment["path"],
            expected=expected, actual=wrong, source="the loader's rules over the files' RPATH and RUNPATH",
            evidence=(f"PyTorch {environment['version']}, {note}", *(f"wheel {one}" for one in wheels)),
            remedy="make the environment anew; look for LD_LIBRARY_PATH and /etc/ld.so.conf.d entries",
        )  # fmt: skip
