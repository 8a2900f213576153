"""Is PyTorch the locked version, and does it load the NCCL that is meant for it?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from goldsmith import Finding, Lock, Node, Severity, upstream

PACKAGE = re.compile(r"python3-torch(-cuda)?")
PLACE = "/usr/lib/python3/dist-packages"
# what a deploy compares are the libraries alone
REINSTALL = "on {{nodes}}: apt-get install --reinstall --allow-change-held-packages {}"


def check(node: Node, lock: Lock, facts: Mapping[str, Any]) -> Iterator[Finding]:
    locked = locked_torch(lock)
    if locked:
        yield from _version(node, lock, locked, facts["system"])
        yield from _files(node, locked, facts["packaged"])
    for environment in facts["environments"]:
        yield from _environment(node, lock, environment)
        yield from _nccl(node, lock, environment, facts["loader_error"])


def locked_torch(lock: Lock) -> tuple[str, str] | None:
    """The locked package (with its version) and the version that PyTorch has in it; None without one."""
    for package in lock.family("pytorch"):
        # 2.6.0+dfsg-7 is 2.6.0+debian in version.py: the numbers count
        match = re.match(r"\d+\.\d+\.\d+", upstream(package.version))
        if PACKAGE.fullmatch(package.name) and match:
            return f"{package.name} {package.version}", match.group()
    return None


def _version(node: Node, lock: Lock, locked: tuple[str, str], system: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """What /usr/bin/python3 imports is the package's, and the package's is the locked version."""
    package, expected = locked
    common: dict[str, Any] = {
        "node": node.name, "check": "pytorch.version-matches-lock", "severity": Severity.FAIL,
        "expected": f"PyTorch {expected} of {package}", "source": f"images/{lock.image}/image.lock",
    }  # fmt: skip
    own = next((one for one in system if one["path"] == PLACE), None)
    if own is None or (own["version"] or "").split("+")[0] != expected:
        yield Finding(
            fact=PLACE, actual=_said(own) if own else "no PyTorch", evidence=(f"{PLACE}/torch/version.py",),
            remedy="goldsmith deploy {site} --limit {nodes}; where dpkg calls it installed already, "
                   + REINSTALL.format(package.split()[0]), **common,
        )  # fmt: skip
    if system and system[0]["path"] != PLACE:
        first = system[0]
        yield Finding(
            fact=first["path"], actual=f"{_said(first)} of no package, and /usr/bin/python3 imports it",
            evidence=(f"before {PLACE} on the path of the system's Python",),
            remedy="on {nodes}: uninstall it (/usr/bin/python3 -m pip uninstall torch), or move it to an environment "
                   "of its own", **common,
        )  # fmt: skip


LOCKED = re.compile(r"/opt/goldsmith/python/(?P<name>.+)-[0-9a-f]{12}(\.\d+)?/lib/")


def _environment(node: Node, lock: Lock, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """A locked environment has the locked torch: what its version.py says, beside what is recorded of it."""
    match = LOCKED.match(facts["path"])
    locked = lock.environments.get(match["name"]) if match else None
    if match is None or locked is None:
        return
    wheel = locked.wheels.get("torch")
    seen = facts["version"] or ""
    # the default index has builds for one CUDA without saying so: 2.6.0 is 2.6.0+cu124 in its version.py
    fits = wheel is not None and wheel.version in (seen, seen.split("+")[0])
    if not fits:
        yield Finding(
            node=node.name, check="pytorch.version-matches-lock", severity=Severity.FAIL, fact=facts["path"],
            expected=f"PyTorch {wheel.version} of {wheel.filename}" if wheel else "no PyTorch in this environment",
            actual=_said(facts), source=f"images/{lock.image}/image.lock",
            evidence=(f"{facts['path']}/torch/version.py",), remedy="goldsmith deploy {site} --limit {nodes}",
        )  # fmt: skip


def _said(one: Mapping[str, Any]) -> str:
    return f"PyTorch {one['version'] or 'of unknown version'}"


def _files(node: Node, locked: tuple[str, str], packaged: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for one in packaged:
        wrong = one["wrong"]
        if wrong and one["package"] == locked[0].split()[0]:
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            yield Finding(
                node=node.name, check="pytorch.files-match-package", severity=Severity.FAIL, fact=one["package"],
                expected=f"the {one['checked']} Python files of {locked[0]}",
                actual=f"edited or gone: {', '.join(wrong[:5])}{more}", since=one["since"] or "",
                source="dpkg's own md5sums", evidence=(f"/var/lib/dpkg/info/{one['package']}.md5sums",),
                remedy=REINSTALL.format(one["package"]) + ", once what was edited is copied (a deploy doesn't heal it)",
            )  # fmt: skip


def _nccl(node: Node, lock: Lock, environment: Mapping[str, Any], loader_error: str | None) -> Iterator[Finding]:
    note, path = environment["nccl_note"], environment["nccl"]
    wheels = environment["nccl_wheels"]
    own = environment["path"] + "/"
    expected = "its own wheel's NCCL" if wheels else "the system's locked NCCL"
    if loader_error and environment["cuda"] and not (path or "").startswith(own):
        yield Finding(
            node=node.name, check="pytorch.nccl-loaded", severity=Severity.UNKNOWN, fact=environment["path"],
            expected=expected, actual="the loader's cache can't be read", evidence=(loader_error,),
            source="the loader's rules over the files' RPATH and RUNPATH", remedy="on {nodes}: ldconfig",
        )  # fmt: skip
        return
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
