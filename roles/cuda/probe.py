"""Every libcudart of the system, by the version in its name. Runs on the node: Python 3.8, stdlib only."""

from __future__ import annotations

import re
from typing import Any

FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/local/lib", "/usr/local/lib64",
           "/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/opt/cuda*/lib64")  # fmt: skip


def probe(run: Any) -> dict[str, Any]:
    """libraries: [{path, version}], links followed; loader: the file the dynamic loader's cache leads to, by soname;
    loader_error: why it couldn't be read, or None.

    Wheels carry their own (libcudart.so.12, no version in its name): those are the environment's, not the system's.
    """
    found = {}
    for folder in [*FOLDERS, *(run.variables.get("cuda_search_paths") or [])]:
        for link in run.glob(folder + "/libcudart.so*"):
            path = run.real(link)
            match = re.search(r"/libcudart\.so\.(\d+\.\d+\.\d+)$", path)
            if match and run.exists(path):
                found[path] = {"path": path, "version": match.group(1)}
    loader: dict[str, str] = {}
    done = run(["ldconfig", "-p"])
    for line in done.out.splitlines():
        hit = re.match(r"\s+(libcudart\.so\.\d+) \(.*64.*\) => (\S+)", line)
        if hit:
            loader.setdefault(hit.group(1), run.real(hit.group(2)))
    return {
        "libraries": [found[path] for path in sorted(found)],
        "loader": loader,
        "loader_error": None if done.code == 0 else " ".join(done.err.split()) or f"ldconfig -p: exit {done.code}",
    }
