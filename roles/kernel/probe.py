"""Installed kernels, their headers, and what DKMS built for them. Python 3.8, standard library only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

# modinfo unpacks each module of an image
DEADLINE = 25


def probe(run: Any) -> dict[str, Any]:
    """own: the kernel is this node's. kernels: those that boot, {release, headers}. dkms: see `modules`.

    DKMS's folders are read, not `dkms status`: it takes 0.1 s, and says `added` of a build that failed.
    """
    running = (run.read("/proc/sys/kernel/osrelease") or os.uname().release).strip()
    releases = [path[len("/boot/vmlinuz-") :] for path in run.glob("/boot/vmlinuz-*")]
    return {
        "own": run.target == "live" and not run.container,
        "running": running,
        "kernels": [{"release": one, "headers": run.exists(f"/lib/modules/{one}/build/Makefile")} for one in releases],
        "dkms": modules(run),
        "dkms_present": run.exists("/usr/sbin/dkms") or run.exists("/usr/bin/dkms"),
    }


def modules(run: Any) -> list[dict[str, Any]]:
    """[{module, version, registered, wanted, installed: releases, missing, built, error}], by name.

    registered: dkms knows it; wanted: packages' scripts would build it. missing: release → modules that dkms says it
    installed, and that modprobe wouldn't find. built, in an image: what modinfo says of each, {name, path, version,
    kernel}. error: the compiler's line of a build that failed.
    """
    known = [tuple(source.split("/")[4:6]) for source in run.glob("/var/lib/dkms/*/*/source")]
    wanted = dict(sources(run))
    found = []
    for module, version in sorted({*known, *wanted}):
        folder = f"/var/lib/dkms/{module}/{version}"
        installed, missing, built = [], {}, []
        # kernel-RELEASE-ARCH → VERSION/RELEASE/ARCH, made when the module was installed
        for link in run.glob(f"/var/lib/dkms/{module}/kernel-*"):
            parts = os.readlink(run.path(link)).split("/") if os.path.islink(run.path(link)) else []
            if len(parts) == 3 and parts[0] == version:
                release = parts[1]
                installed.append(release)
                names = [stem(path) for path in run.glob(f"{folder}/{release}/{parts[2]}/module/*.ko*")]
                paths = loadable(run, release, names)
                lost = [name for name in names if name not in paths] if names else ["all of it"]
                if lost:
                    missing[release] = lost
                if run.target == "image":
                    built += [modinfo(run, name, paths[name]) for name in names if name in paths]
        found.append({
            "module": module,
            "version": version,
            "registered": (module, version) in known,
            "wanted": wanted.get((module, version), True),
            "installed": sorted(installed),
            "missing": missing,
            "built": built,
            "error": first_error(run, folder + "/build/make.log"),
        })  # fmt: skip
    return found


def sources(run: Any) -> Iterator[tuple[tuple[str, str], bool]]:
    """(module, version), whether it is to be built by itself: of each source that a package brought."""
    for conf in run.glob("/usr/src/*/dkms.conf"):
        text = run.read(conf) or ""
        fields = assignments(text)
        name, version = fields.get("PACKAGE_NAME", ""), fields.get("PACKAGE_VERSION", "")
        if re.fullmatch(r"[A-Za-z0-9][\w.+~-]*", name) and re.fullmatch(r"[A-Za-z0-9][\w.+~-]*", version):
            # what a site lays over it, as dkms reads it
            for more in (name, name + "-" + version):
                fields.update(assignments(run.read("/etc/dkms/" + more + ".conf") or ""))
            yield (name, version), fields.get("AUTOINSTALL", "").lower() not in ("", "no")


def assignments(text: str) -> dict[str, str]:
    return dict(re.findall(r"^\s*(PACKAGE_NAME|PACKAGE_VERSION|AUTOINSTALL)=[\"']?([^\"'\s#]*)", text, re.M))


def loadable(run: Any, release: str, names: list[str]) -> dict[str, str]:
    """Of these modules → the file that modprobe would load: one that depmod doesn't know isn't loaded."""
    found = {}
    for line in (run.read(f"/lib/modules/{release}/modules.dep") or "").splitlines():
        path = line.split(":", 1)[0]
        path = path if path.startswith("/") else f"/lib/modules/{release}/{path}"
        if stem(path) in names and run.exists(path):
            found[stem(path)] = path
    return found


def stem(path: str) -> str:
    """/a/nvidia-uvm.ko.xz → nvidia-uvm"""
    return path.rsplit("/", 1)[-1].split(".ko", 1)[0]


def modinfo(run: Any, name: str, path: str) -> dict[str, Any]:
    """version: the module's own, None if it has none. kernel: the release that it was built for."""
    done = run(["modinfo", run.path(path)], timeout=10)
    fields = dict(re.findall(r"^(version|vermagic):\s+(\S+)", done.out, re.M)) if done.code == 0 else {}
    return {"name": name, "path": path, "version": fields.get("version"), "kernel": fields.get("vermagic")}


def first_error(run: Any, path: str) -> str | None:
    """The line that says why: nvidia-open 550.163.01 on 6.12.117 fails in nv-pci.c:237, dpkg says only `exit 1`."""
    for line in (run.read(path) or "").splitlines():
        if " error: " in line or "fatal error:" in line:
            return line.strip()[:300]
    return None
