"""Every PyTorch of the node, and which libnccl it would load. Python 3.8, standard library only.

PyTorch isn't imported (that takes seconds, and a GPU's memory) unless the probe is deep: the loader's rules are
followed over its files' dynamic sections (ld.so(8); LD_LIBRARY_PATH is a job's own and isn't known here).
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import sys
from typing import Any, BinaryIO

DEADLINE = 8
DEEP_DEADLINE = 150
PLACES = (
    "/usr/lib/python3*/dist-packages", "/usr/lib/python3*/site-packages", "/usr/local/lib/python3*/*-packages",
    "/opt/*/lib/python3*/site-packages", "/opt/*/*/lib/python3*/site-packages",
    "/opt/*/envs/*/lib/python3*/site-packages",
)  # fmt: skip
# goldsmith's own: links; the folders beside them are those that they led to before
LOCKED = "/opt/goldsmith/python/*"
NEEDED, STRTAB, STRSZ, RPATH, RUNPATH = 1, 5, 10, 15, 29
IMPORT = (
    "import json, torch\n"
    "nccl = torch.cuda.nccl.version() if torch.version.cuda else None\n"
    "maps = sorted({l.split()[-1] for l in open('/proc/self/maps') if 'libnccl.so' in l})\n"
    "print(json.dumps({'version': torch.__version__, 'cuda': torch.version.cuda, 'nccl': nccl, 'loaded': maps}))"
)


def probe(run: Any) -> dict[str, Any]:
    """environments: [{path, version, cuda, git, cudnn, nccl_wheels, nccl, nccl_note, imported}].

    system: [{path, version}] of each torch on the path of the system's Python, the one that it imports first.
    packaged: see `packaged`. loader_error: why the loader's cache couldn't be read, or None.
    """
    order = search_path(run)
    places = list(run.variables.get("pytorch_environments") or []) + order
    for pattern in PLACES:
        places += run.glob(pattern)
    for link in run.glob(LOCKED):
        places += run.glob(link + "/lib/python3*/site-packages") if os.path.islink(run.path(link)) else []
    cache, loader_error = loader_cache(run)
    found: dict[str, dict[str, Any]] = {}
    for place in places:
        path = run.real(place)
        if path not in found and run.exists(path + "/torch/version.py"):
            found[path] = describe(run, path, cache)
    system = [
        {"path": folder, "version": assigned(run.read(folder + "/torch/version.py") or "", "__version__")}
        for folder in order
        if any(run.exists(folder + name) for name in ("/torch/__init__.py", "/torch/version.py", "/torch.py"))
    ]
    return {
        "environments": [found[path] for path in sorted(found)],
        "system": system,
        "packaged": packaged(run),
        "loader_error": loader_error,
    }


def search_path(run: Any) -> list[str]:
    """Where the system's Python looks for modules, in its order (Debian's site.py, and folders of .pth files)."""
    python = run.real("/usr/bin/python3").rsplit("/", 1)[1]
    python = python if re.fullmatch(r"python3\.\d+", python) else "python3.*"
    order: list[str] = []
    for pattern in (f"/usr/local/lib/{python}", "/usr/lib/python3", f"/usr/lib/{python}"):
        for folder in run.glob(pattern + "/dist-packages"):
            order.append(folder)
            for pth in run.glob(folder + "/*.pth"):
                lines = [line.strip() for line in (run.read(pth) or "").splitlines()]
                order += [os.path.normpath(os.path.join(folder, line)) for line in lines
                          if line and not line.startswith(("#", "import ", "import\t"))]  # fmt: skip
    return list(dict.fromkeys(order))


def packaged(run: Any) -> list[dict[str, Any]]:
    """The *.py files of Debian's packages against dpkg's md5sums: [{package, checked, wrong, since}].

    2027 files of python3-torch: 0.1 s, and 0.25 s when none is in memory. Libraries are the engine's to compare.
    """
    found = []
    for sums in run.glob("/var/lib/dpkg/info/python3-torch*.md5sums"):
        package = sums.rsplit("/", 1)[1][: -len(".md5sums")].split(":")[0]
        if package not in ("python3-torch", "python3-torch-cuda"):
            continue
        facts: dict[str, Any] = {"package": package, "checked": 0, "wrong": [], "since": None}
        for line in (run.read(sums) or "").splitlines():
            expected, _, name = line.partition("  ")
            if not name.endswith(".py"):
                continue
            facts["checked"] += 1
            path = run.path("/" + name)
            try:
                with open(path, "rb") as file:
                    right = md5(file.read()) == expected
                changed = run.iso(os.stat(path).st_ctime) if not right else None
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                right, changed = False, None
            if not right:
                facts["wrong"].append("/" + name)
                facts["since"] = facts["since"] or changed
        found.append(facts)
    return found


def md5(content: bytes) -> str:
    """Compared with dpkg's, not trusted: a kernel in FIPS mode refuses it otherwise."""
    if sys.version_info >= (3, 9):
        return hashlib.md5(content, usedforsecurity=False).hexdigest()
    return hashlib.md5(content).hexdigest()


def describe(run: Any, path: str, cache: dict[str, str]) -> dict[str, Any]:
    text = run.read(path + "/torch/version.py") or ""
    facts: dict[str, Any] = {
        "path": path,
        "version": assigned(text, "__version__"),
        "cuda": assigned(text, "cuda"),
        "git": assigned(text, "git_version"),
        "cudnn": cudnn(run, path),
        "nccl_wheels": [one.rsplit("/", 1)[1][: -len(".dist-info")]
                        for one in run.glob(path + "/nvidia_nccl*.dist-info")],
    }  # fmt: skip
    facts["nccl"], facts["nccl_note"] = would_load(run, path, facts["cuda"], cache)
    if run.deep:
        facts["imported"] = imported(run, path)
    return facts


def assigned(text: str, name: str) -> str | None:
    match = re.search(rf"^{name}(?:\s*:[^=\n]*)?\s*=\s*['\"]([^'\"\n]*)['\"]", text, re.M)
    return match.group(1) if match else None


def cudnn(run: Any, path: str) -> str | None:
    """By the wheel's name, or the system's file name."""
    for folder in run.glob(path + "/nvidia_cudnn*.dist-info"):
        return str(folder[: -len(".dist-info")].rsplit("-", 1)[1])
    for pattern in ("/usr/lib/*-linux-gnu/libcudnn.so.*.*", "/usr/local/cuda*/lib64/libcudnn.so.*.*"):
        for library in run.glob(pattern):
            return str(library.rsplit(".so.", 1)[1])
    return None


def would_load(run: Any, path: str, cuda: str | None, cache: dict[str, str]) -> tuple[str | None, str]:
    """The libnccl that `import torch` would load, and a word on it."""
    starts = run.glob(path + "/torch/_C.*.so") + run.glob(path + "/torch/lib/libtorch_cuda.so")
    if not starts:
        return None, "no torch/_C.*.so"
    wanted, loaded, missing = closure(run, starts, cache)
    name = next((one for one in wanted if one.startswith("libnccl.so")), None)
    if name is None:
        static = "built for CUDA, and NCCL is linked into it or left out" if cuda else "built for the CPU: no NCCL"
        return None, static
    if name in missing:
        return None, f"needs {name}, which isn't found"
    return loaded[name], f"needed by {wanted[name]}"


def closure(run: Any, starts: list[str], cache: dict[str, str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """What the loader would do, breadth first as it does: soname → who needs it, soname → file, and what it misses."""
    wanted: dict[str, str] = {}
    loaded: dict[str, str] = {}
    missing: list[str] = []
    queue: list[tuple[str, list[str]]] = [(start, []) for start in starts]
    while queue:
        path, inherited = queue.pop(0)
        try:
            with open(run.path(path), "rb") as file:
                dynamic = read_dynamic(file)
        except (OSError, ValueError, struct.error):
            continue
        origin = os.path.dirname(run.real(path))
        # RPATH counts for what is loaded on behalf of it too, unless there is a RUNPATH; RUNPATH for itself alone
        own = [] if dynamic["runpath"] else expand(dynamic["rpath"], origin)
        rpaths = own + inherited
        for name in dynamic["needed"]:
            if name in wanted:
                continue
            wanted[name] = path
            folders = ([] if dynamic["runpath"] else rpaths) + expand(dynamic["runpath"], origin)
            file_path = find(run, name, folders, cache)
            if file_path is None:
                missing.append(name)
            else:
                loaded[name] = run.real(file_path)
                queue.append((file_path, rpaths))
    return wanted, loaded, missing


def expand(paths: list[str], origin: str) -> list[str]:
    return [os.path.normpath(one.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)) for one in paths if one]


def find(run: Any, name: str, folders: list[str], cache: dict[str, str]) -> str | None:
    for folder in folders:
        if run.exists(folder + "/" + name):
            return folder + "/" + name
    if name in cache and run.exists(cache[name]):
        return cache[name]
    for folder in ("/lib64", "/usr/lib64", "/lib", "/usr/lib"):
        if run.exists(folder + "/" + name):
            return folder + "/" + name
    return None


def loader_cache(run: Any) -> tuple[dict[str, str], str | None]:
    """soname → file, of /etc/ld.so.cache, 64 bit; and why it couldn't be read, or None."""
    found: dict[str, str] = {}
    done = run(["ldconfig", "-p"])
    for line in done.out.splitlines():
        match = re.match(r"\s+(\S+) \(([^)]*)\) => (\S+)", line)
        if match and ("64" in match.group(2) or "AArch64" in match.group(2)):
            found.setdefault(match.group(1), match.group(3))
    return found, None if done.code == 0 else " ".join(done.err.split()) or f"ldconfig -p: exit {done.code}"


def read_dynamic(file: BinaryIO) -> dict[str, list[str]]:
    """needed, rpath, runpath of a 64-bit little-endian ELF file. Raises ValueError for anything else."""
    head = file.read(64)
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    start, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
    file.seek(start)
    table = file.read(size * count)
    segments = [struct.unpack_from("<IIQQQQ", table, size * index) for index in range(count)]
    found: dict[str, list[str]] = {"needed": [], "rpath": [], "runpath": []}
    entries: list[tuple[int, int]] = []
    for kind, _flags, offset, _address, _physical, length in segments:
        if kind == 2:  # PT_DYNAMIC
            file.seek(offset)
            entries = list(struct.iter_unpack("<qQ", file.read(length // 16 * 16)))
    values = dict(entries)
    if STRTAB not in values:
        return found  # static
    strings = b""
    for kind, _flags, offset, address, _physical, length in segments:
        if kind == 1 and address <= values[STRTAB] < address + length:  # PT_LOAD
            file.seek(offset + values[STRTAB] - address)
            strings = file.read(min(values.get(STRSZ, 0), 1 << 24))

    def text(offset: int) -> str:
        return strings[offset : strings.index(b"\0", offset)].decode("utf-8", "replace")

    for tag, value in entries:
        if tag == NEEDED:
            found["needed"].append(text(value))
        elif tag == RPATH:
            found["rpath"] = text(value).split(":")
        elif tag == RUNPATH:
            found["runpath"] = text(value).split(":")
        elif tag == 0:
            break
    return found


def imported(run: Any, path: str) -> dict[str, Any]:
    """What PyTorch says of itself when it is imported by the environment's own Python."""
    import json

    home = path.split("/lib/python3")[0]
    python = "/usr/bin/python3" if home in ("/usr", "/usr/local") else home + "/bin/python3"
    if not run.exists(python):
        return {"error": f"no {python}"}
    done = run([run.path(python), "-B", "-c", IMPORT], timeout=60)
    try:
        return dict(json.loads(done.out.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        return {"error": (done.err.strip().splitlines() or [f"exit {done.code}"])[-1][:300]}
