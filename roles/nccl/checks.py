"""Is the NCCL library the locked one, byte for byte, and the only one? Is its configuration read as it was meant?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from goldsmith import Finding, Lock, Node, Severity, upstream

from .rules import DEBUGGING, NEED_REASON, problems


def check(node: Node, lock: Lock, facts: Mapping[str, Any]) -> Iterator[Finding]:
    version, files = locked(lock)
    if version:
        yield from _matches_lock(node, lock, version, files, facts)
        yield from _one_version(node, lock, version, facts)
        yield from _search_complete(node, version, facts)
    yield from _conf(node, facts)


def locked(lock: Lock) -> tuple[str | None, dict[str, tuple[int, str, str]]]:
    """The locked version as NCCL counts (2.22.3), and path → size, sha256, package of the locked libraries."""
    version, files = None, {}
    for package in lock.family("nccl"):
        # libnccl2 2.22.3-1-1 of Debian, 2.21.5-1+cuda12.4 of NVIDIA
        match = re.match(r"\d+\.\d+\.\d+", upstream(package.version))
        if re.fullmatch(r"libnccl\d+", package.name) and match:
            version = match.group()
        for path, file in package.files.items():
            if file.link is not None:
                continue  # the engine compares where the package's links lead
            # a deb may say /lib where the node, its /usr merged, says /usr/lib
            path = path if path.startswith("/usr/") else f"/usr{path}"
            if re.search(r"/libnccl\.so[.\d]*$", path):
                files[path] = (file.size, file.sha256, f"{package.name} {package.version}")
    return version, files


def _matches_lock(
    node: Node, lock: Lock, version: str, files: Mapping[str, tuple[int, str, str]], facts: Mapping[str, Any]
) -> Iterator[Finding]:
    common = {
        "node": node.name, "check": "nccl.library-matches-lock",
        "source": f"images/{lock.image}/image.lock",
    }  # fmt: skip
    deploy = "goldsmith deploy {site} --limit {nodes}"
    links = {path for package in lock.family("nccl") for path, file in package.files.items() if file.link is not None}
    if facts["loader_error"]:
        yield Finding(
            severity=Severity.UNKNOWN, fact="libnccl.so.2", expected=f"NCCL {version}", remedy="on {nodes}: ldconfig",
            actual="the loader's cache can't be read", evidence=(facts["loader_error"],), **common,
        )  # fmt: skip
    judged = set()
    for library in facts["libraries"]:
        path, taken = library["path"], library["path"] == facts["loader"]
        if not taken and path not in files:
            continue  # another one: see _one_version
        judged.add(path)
        said = library["version"] or f"no version ({library['error'] or 'none inside it'})"
        evidence = [f"the library answers {said}" if library.get("asked") else f"the text in it says {said}"]
        if "sha256" not in library:
            yield Finding(severity=Severity.UNKNOWN, fact=path, expected=f"NCCL {version}", actual="can't be read",
                          evidence=(str(library["error"]),), remedy="on {nodes}: look why, as root",
                          **common)  # fmt: skip
            continue
        if path not in files and files:
            yield Finding(
                severity=Severity.FAIL, fact=path, expected=f"NCCL {version} of {_one_of(files)}",
                actual=f"NCCL {said} of no package, and the loader takes it", since=library["since"],
                evidence=(*evidence, f"links to it: {', '.join(library['links']) or 'none'}"),
                remedy=deploy if path in links
                       else "on {nodes}: move it away, or what leads to it in /etc/ld.so.conf.d; then ldconfig",
                **common,
            )  # fmt: skip
        elif path in files and (library["size"], library["sha256"]) != files[path][:2]:
            # dpkg knows nothing of it: its database still has the package's version and calls it whole
            yield Finding(
                severity=Severity.FAIL, fact=path,
                expected=f"NCCL {version}, sha256 {files[path][1][:12]}, of {files[path][2]}",
                actual=f"NCCL {said}, sha256 {library['sha256'][:12]}", since=library["since"],
                evidence=(*evidence, f"{library['size']} bytes, in the package {files[path][0]}",
                          f"there since {library['since']}, whatever dpkg says of {files[path][2]}"),
                remedy=deploy, **common,
            )  # fmt: skip
        elif library["version"] != version:
            yield Finding(severity=Severity.FAIL, fact=path, expected=f"NCCL {version}", actual=f"NCCL {said}",
                          evidence=tuple(evidence), since=library["since"], remedy=deploy, **common)  # fmt: skip
    if not judged and not facts["loader_error"]:
        yield Finding(severity=Severity.FAIL, fact="libnccl.so.2", expected=f"NCCL {version}",
                      actual="not in the loader's cache", evidence=("ldconfig -p",), remedy=deploy,
                      **common)  # fmt: skip


def _one_of(files: Mapping[str, tuple[int, str, str]]) -> str:
    return next(iter(files.values()))[2]


def _one_version(node: Node, lock: Lock, version: str, facts: Mapping[str, Any]) -> Iterator[Finding]:
    others = [one for one in facts["libraries"] if one["version"] not in (None, version)
              and one["path"] != facts["loader"]]  # fmt: skip
    for other in others:
        # whichever comes first on somebody's path is loaded: `undefined symbol ncclCommRegister` (pytorch#119072,
        # verl#6621)
        yield Finding(
            node=node.name, check="nccl.one-version", severity=Severity.WARN, fact=other["path"],
            expected=f"NCCL {version} alone on the node", actual=f"NCCL {other['version']}",
            source=f"images/{lock.image}/image.lock", since=other["since"],
            evidence=(f"the loader takes {facts['loader'] or 'none'}",),
            remedy="remove it, or lock this version; a wheel's own is right if its PyTorch alone loads it",
        )  # fmt: skip


def _search_complete(node: Node, version: str, facts: Mapping[str, Any]) -> Iterator[Finding]:
    # named folders below the trees: whoever named them says where libraries are
    named = [one for one in node.variables.get("nccl_search_paths", []) if one.startswith(("/opt", "/usr/local"))]
    if not facts["walked"] and not named:
        yield Finding(
            node=node.name, check="nccl.search-complete", severity=Severity.UNKNOWN, fact="/opt and /usr/local",
            expected=f"no other NCCL than {version}", actual="too many folders, the search was cut off",
            evidence=(f"{len(facts['libraries'])} libnccl found until then",),
            remedy="goldsmith audit {site} --limit {nodes} --deep searches longer; or name the folders there that hold "
                   "NCCL in nccl_search_paths",
        )  # fmt: skip


def _conf(node: Node, facts: Mapping[str, Any]) -> Iterator[Finding]:
    for path, lines in (("/etc/nccl.conf", facts["conf"] or []), ("/etc/environment", facts["environment"])):
        seen: set[str] = set()
        for line in lines:
            key, value = line["key"], line["value"]
            wrong = [] if path == "/etc/environment" else list(problems(key, "…" if value is None else value))
            if key in seen and path == "/etc/nccl.conf":
                wrong.append("stands here twice: the first line is the one that counts")
            seen.add(key)
            severity = Severity.FAIL if wrong else Severity.WARN
            reason = key in NEED_REASON and not node.variables.get("nccl_config_reasons", {}).get(key)
            if reason:
                severity = Severity.FAIL
                wrong.append(f"set for the whole node: {NEED_REASON[key]}")
            elif DEBUGGING.fullmatch(key) and key not in node.variables.get("nccl_config", {}):
                wrong.append("for debugging one job, not for the whole node")
            for problem in wrong:
                yield Finding(
                    node=node.name, check="nccl.conf-lint", severity=severity, fact=f"{path}:{line['line']}",
                    expected="KEY=VALUE as NCCL reads it, nothing that a whole node mustn't have",
                    actual=f"{key}={'(not shown)' if value is None else value}: {problem}",
                    source="NCCL's parser, roles/nccl/rules.py", evidence=(path,),
                    remedy="goldsmith deploy {site} --limit {nodes}" if path == "/etc/nccl.conf"
                           else f"on {{nodes}}: remove it from {path}",
                )  # fmt: skip
