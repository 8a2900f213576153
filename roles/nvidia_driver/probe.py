"""GPUs, the module that is loaded, those on disk, the libraries: each by itself. Python 3.8, stdlib only.

Files alone are read: `nvidia-smi` takes seconds, hangs on a GPU that fell off the bus, and says `healthy` of
nodes whose CUDA fails (aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop#28).
"""

from __future__ import annotations

import os
import re
from typing import Any

# modinfo unpacks the module: 40 MB of xz are half a second of an idle core, and were more than 2 s on a busy machine
DEADLINE = 25
LIBRARIES = ("libcuda.so.*", "libnvidia-ml.so.*")
FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/lib/*-linux-gnu/nvidia/*", "/usr/lib/nvidia*",
           "/usr/local/lib", "/usr/local/lib64", "/usr/local/cuda*/compat")  # fmt: skip
# nvidia.ko; Debian's are nvidia-current.ko, nvidia-current-open.ko, nvidia-tesla-535.ko …
MODULE = re.compile(r"(?:^|/)nvidia(-current|-tesla(-\d+)?|-legacy-\d+\w*|-open)*\.ko(\.\w+)?$")


def probe(run: Any) -> dict[str, Any]:
    """own: kernel and devices are this node's. The rest: see each function."""
    own = run.target == "live" and not run.container
    devices = pci(run) if own else []
    taken, loader_error = loader(run)
    return {
        "own": own,
        "gpus": [one for one in devices if one["class"].startswith("0x03")],
        "nvswitches": [one for one in devices if one["class"].startswith("0x0680")],
        "loaded": loaded(run) if own else None,
        "nouveau": own and run.exists("/sys/module/nouveau"),
        "on_disk": on_disk(run, own),
        "libraries": libraries(run),
        "loader": taken,
        "loader_error": loader_error,
        "nvidia_smi": nvidia_smi(run),
        "fabricmanager": fabricmanager(run),
    }


def pci(run: Any) -> list[dict[str, str]]:
    """NVIDIA's devices: [{address, class, device}]."""
    found = []
    for folder in run.glob("/sys/bus/pci/devices/*"):
        if (run.read(folder + "/vendor") or "").strip().lower() == "0x10de":
            found.append({
                "address": folder.rsplit("/", 1)[1],
                "class": (run.read(folder + "/class") or "").strip().lower(),
                "device": (run.read(folder + "/device") or "").strip().lower(),
            })  # fmt: skip
    return found


def loaded(run: Any) -> dict[str, Any] | None:
    """The loaded module: {version, open}, or None."""
    text = run.read("/proc/driver/nvidia/version") or ""
    version = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    plain = (run.read("/sys/module/nvidia/version") or "").strip()
    if not version and not plain:
        return None
    return {"version": version.group(1) if version else plain, "open": "Open Kernel Module" in text if text else None}


def on_disk(run: Any, own: bool) -> list[dict[str, Any]]:
    """The module that each kernel would load: [{kernel, running, next, path, version, open, error}].

    Kernels: the running one and the newest installed, which boots next; all of an image. path is None where there is no
    module. By modules.dep: a file that depmod doesn't know isn't loaded either.
    """
    running = (run.read("/proc/sys/kernel/osrelease") or os.uname().release).strip() if own else ""
    images = [path[len("/boot/vmlinuz-") :] for path in run.glob("/boot/vmlinuz-*")]
    following = max(images, key=order) if images else running
    found = []
    kernels = images if run.target == "image" else [running, following]
    for kernel in sorted({one for one in kernels if one}, key=order):
        facts = {"kernel": kernel, "running": kernel == running, "next": kernel == following, "path": None,
                 "version": None, "open": None, "error": None}  # fmt: skip
        for line in (run.read(f"/lib/modules/{kernel}/modules.dep") or "").splitlines():
            path = line.split(":", 1)[0]
            if MODULE.search(path):
                path = path if path.startswith("/") else f"/lib/modules/{kernel}/{path}"
                facts.update(path=path, **modinfo(run, path))
                break
        found.append(facts)
    return found


def modinfo(run: Any, path: str) -> dict[str, Any]:
    done = run(["modinfo", run.path(path)], timeout=10)
    fields = dict(re.findall(r"^(version|license):\s+(.*?)\s*$", done.out, re.M))
    if done.code != 0 or "version" not in fields:
        return {"error": done.err.strip() or "modinfo names no version"}
    return {"version": fields["version"], "open": "GPL" in fields.get("license", "")}


def order(release: str) -> tuple[Any, ...]:
    """By the numbers before the flavour."""
    return [int(one) for one in re.findall(r"\d+", re.sub(r"-[a-z][a-z0-9_-]*$", "", release))], release


def libraries(run: Any) -> list[dict[str, Any]]:
    """The driver's libraries on disk: [{name, path, version, compat}], by their own names, links followed."""
    found = {}
    for folder in FOLDERS:
        for pattern in LIBRARIES:
            for link in run.glob(folder + "/" + pattern):
                path = run.real(link)
                match = re.search(r"/(lib[\w-]+)\.so\.(\d+\.\d+(?:\.\d+)*)$", path)
                if match and run.exists(path):
                    found[path] = {
                        "name": match.group(1),
                        "path": path,
                        "version": match.group(2),
                        # forward compatibility libraries are meant to be of another version
                        "compat": "/compat/" in link,
                    }
    return [found[path] for path in sorted(found)]


def loader(run: Any) -> tuple[dict[str, str], str | None]:
    """Soname → the file that the dynamic loader's cache leads to; and why it couldn't be read, or None."""
    found: dict[str, str] = {}
    done = run(["ldconfig", "-p"])
    for line in done.out.splitlines():
        match = re.match(r"\s+(libcuda\.so\.1|libnvidia-ml\.so\.1) \((.*)\) => (\S+)", line)
        if match and "64" in match.group(2):
            found.setdefault(match.group(1), run.real(match.group(3)))
    return found, None if done.code == 0 else " ".join(done.err.split()) or f"ldconfig -p: exit {done.code}"


def nvidia_smi(run: Any) -> dict[str, Any] | None:
    """{path, version}: by the version that is compiled into the file."""
    path = run.real("/usr/bin/nvidia-smi")
    if not run.exists(path) or os.path.getsize(run.path(path)) > 1 << 25:
        return None
    with open(run.path(path), "rb") as file:
        match = re.search(rb"\0(\d{3}\.\d{2,3}(?:\.\d{2})?)\0", file.read())
    return {"path": path, "version": match.group(1).decode() if match else None}


def fabricmanager(run: Any) -> list[dict[str, str]]:
    """The installed packages: [{package, version, status}]."""
    if not run.glob("/var/lib/dpkg/info/nvidia-fabric*manager*.list"):
        return []
    done = run(["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\\n", "nvidia-fabric*manager*"])
    rows = [line.split() for line in done.out.splitlines()]
    return [dict(zip(("package", "version", "status"), row)) for row in rows if len(row) == 3 and row[2][1] != "n"]
