"""Installed kernels, their headers, and what DKMS built for them. Python 3.8, standard library only."""

from __future__ import annotations

import os
from typing import Any


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
    """[{module, version, installed: releases, error: the compiler's line of a build that failed}]."""
    found = []
    for source in run.glob("/var/lib/dkms/*/*/source"):
        module, version = source.split("/")[4:6]
        installed = []
        # kernel-RELEASE-ARCH → VERSION/RELEASE/ARCH, made when the module was installed
        for link in run.glob(f"/var/lib/dkms/{module}/kernel-*"):
            parts = os.readlink(run.path(link)).split("/") if os.path.islink(run.path(link)) else []
            if len(parts) == 3 and parts[0] == version:
                installed.append(parts[1])
        folder = f"/var/lib/dkms/{module}/{version}"
        found.append({
            "module": module,
            "version": version,
            "installed": sorted(installed),
            "error": first_error(run, folder + "/build/make.log"),
        })  # fmt: skip
    return found


def first_error(run: Any, path: str) -> str | None:
    """The line that says why: nvidia-open 550.163.01 on 6.12.117 fails in nv-pci.c:237, dpkg says only `exit 1`."""
    for line in (run.read(path) or "").splitlines():
        if " error: " in line or "fatal error:" in line:
            return line.strip()[:300]
    return None
