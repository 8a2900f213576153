"""Every libnccl of the node, what each answers for its version, and NCCL's settings. Python 3.8, stdlib only."""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

DEADLINE = 8
DEEP_DEADLINE = 60
FOLDERS = (
    "/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/local/lib", "/usr/local/lib64",
    "/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib",
    "/usr/lib/python3*/dist-packages/nvidia/nccl/lib", "/usr/local/lib/python3*/*-packages/nvidia/nccl/lib",
)  # fmt: skip
# Where people unpack things. Walked within one file system, so that a dead NFS mount below doesn't hang us.
TREES = ("/opt", "/usr/local")
WALK_SECONDS = 1.0
WALK_FOLDERS = 20000
DEEP_WALK = 20  # times as far
SECRET = re.compile("SECRET|TOKEN|PASS|CRED|PRIVATE", re.I)
# The library runs code when it is loaded: in a process of its own, under a deadline.
ASK = (
    "import ctypes,sys; v=ctypes.c_int(); l=ctypes.CDLL(sys.argv[1]); print(l.ncclGetVersion(ctypes.byref(v)), v.value)"
)


def probe(run: Any) -> dict[str, Any]:
    """libraries: see `describe`. loader: the file that the dynamic loader takes for libnccl.so.2, or None;
    loader_error: why that couldn't be read, or None.

    walked: the search of /opt and /usr/local came to its end. conf: the lines of /etc/nccl.conf as NCCL takes them,
    None if there is no file. environment: NCCL_ variables of /etc/environment.
    """
    cache = run(["ldconfig", "-p"])
    loader = [line.split("=> ")[1].strip() for line in cache.out.splitlines()
              if re.match(r"\s+libnccl\.so\.2 \(.*64.*\) => ", line)]  # fmt: skip
    walked, links = walk(run)
    for folder in [*FOLDERS, *(run.variables.get("nccl_search_paths") or [])]:
        links += run.glob(folder + "/libnccl.so*")
    names: dict[str, set[str]] = {}
    for link in loader + links:
        if run.exists(link):
            names.setdefault(run.real(link), set()).add(link)
    with ThreadPoolExecutor(max_workers=4) as pool:
        described = list(pool.map(lambda path: describe(run, path, names[path]), sorted(names)))
    text = run.read("/etc/nccl.conf", limit=1 << 16)
    return {
        "libraries": described,
        "loader": run.real(loader[0]) if loader else None,
        "loader_error": None if cache.code == 0 else " ".join(cache.err.split()) or f"ldconfig -p: exit {cache.code}",
        "walked": walked,
        "conf": None if text is None else list(settings(text)),
        "environment": [one for one in settings(run.read("/etc/environment", limit=1 << 16) or "")
                        if one["key"].strip().startswith("NCCL_")],
    }  # fmt: skip


def walk(run: Any) -> tuple[bool, list[str]]:
    """Whether the walk was complete, and every libnccl.so* found on it."""
    found: list[str] = []
    far = DEEP_WALK if run.deep else 1
    ends, left = time.monotonic() + WALK_SECONDS * far, WALK_FOLDERS * far
    for tree in TREES:
        try:
            device = os.stat(run.path(tree)).st_dev
        except OSError:
            continue
        folders = [run.path(tree)]
        while folders:
            left -= 1
            if left < 0 or time.monotonic() > ends:
                return False, found
            try:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            if entry.stat(follow_symlinks=False).st_dev == device:
                                folders.append(entry.path)
                        elif entry.name.startswith("libnccl.so"):
                            found.append(run.inside(entry.path))
            except OSError:
                continue
    return True, found


def describe(run: Any, path: str, links: set[str]) -> dict[str, Any]:
    """{path, links, size, since, sha256, version, asked, error}. version is what the library itself answers.

    A library that others than root may replace isn't loaded (we are root): then version is that of the text
    inside it, and `asked` is False.
    """
    facts: dict[str, Any] = {"path": path, "links": sorted(links - {path}), "version": None, "error": None}
    try:
        status = os.stat(run.path(path))
        # ctime: since when it is here; a copied file may keep the time of another
        facts.update(size=status.st_size, since=run.iso(status.st_ctime), sha256=run.sha256(path))
        facts["asked"] = safe(run.path(path))
        if not facts["asked"]:
            with open(run.path(path), "rb") as file:
                match = re.search(rb"NCCL version (\d+\.\d+\.\d+)", file.read())
            facts["version"] = match.group(1).decode() if match else None
            return facts
    except OSError as error:
        facts["error"] = error.strerror
        return facts
    done = run([sys.executable or "python3", "-I", "-S", "-B", "-c", ASK, run.path(path)], timeout=4)
    words = done.out.split()
    if done.code == 0 and len(words) == 2 and words[0] == "0":
        facts["version"] = decode(int(words[1]))
    else:
        lines = done.err.strip().splitlines()
        facts["error"] = (lines[-1] if lines else f"ncclGetVersion: exit {done.code}")[:300]
    return facts


def safe(path: str) -> bool:
    """Only root can change the file and every folder above it (or we aren't root, and have nothing to lose)."""
    if os.geteuid() != 0:
        return True
    while True:
        status = os.stat(path)
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_uid != 0 or (status.st_mode & 0o022 and not sticky):
            return False
        if path in ("/", ""):
            return True
        path = os.path.dirname(path)


def decode(code: int) -> str:
    """22203 → 2.22.3; before 2.9 it was 2808 → 2.8.8 (nccl.h, NCCL_VERSION)."""
    big, small = (10000, 100) if code >= 10000 else (1000, 100)
    return f"{code // big}.{code % big // small}.{code % 100}"


def settings(text: str) -> Iterator[dict[str, Any]]:
    """{line, key, value} as NCCL's parser takes them: nothing trimmed. A secret's value is left out."""
    for number, line in enumerate(text.split("\n"), 1):
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            yield {"line": number, "key": key[:200], "value": None if SECRET.search(key) else value[:1023]}
