"""Does the locked kernel run, and are headers and DKMS modules there for every kernel that may boot?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from goldsmith import Finding, Lock, Node, Severity


def check(node: Node, lock: Lock, facts: Mapping[str, Any]) -> Iterator[Finding]:
    source = f"images/{lock.image}/image.lock"
    locked = locked_releases(lock)
    if facts["own"] and locked and facts["running"] not in locked:
        installed = [one["release"] for one in facts["kernels"] if one["release"] in locked]
        yield Finding(
            node=node.name, check="kernel.running-is-locked", severity=Severity.FAIL, fact="running kernel",
            expected=" or ".join(locked), actual=facts["running"], source=source,
            evidence=(f"/proc/sys/kernel/osrelease; installed: {', '.join(installed) or 'none of the lock'}",),
            remedy="reboot {nodes}" if installed else "goldsmith deploy {site} --limit {nodes}, then reboot",
        )  # fmt: skip
    kernels = list(facts["kernels"])
    if node.target == "image" and lock.kernel and lock.kernel not in [one["release"] for one in kernels]:
        # no file of it in /boot, and modules are wanted for it all the same
        kernels.append({"release": lock.kernel, "headers": True})
    for kernel in kernels:
        release = kernel["release"]
        if facts["dkms_present"] and not kernel["headers"]:
            # an updated kernel without its headers boots into a node without a driver
            # (GoogleCloudPlatform/compute-gpu-installation#25)
            yield Finding(
                node=node.name, check="kernel.headers-installed", severity=Severity.FAIL,
                fact=f"headers of {release}", expected="installed", actual="missing",
                evidence=(f"/lib/modules/{release}/build/Makefile isn't there, and dkms is",),
                remedy=f"add linux-headers-{release} to the kernel family of images/{lock.image}/image.yml",
            )  # fmt: skip
        for module in facts["dkms"]:
            if actual := fault(module, release, image=node.target == "image"):
                yield _not_built(node, release, module, actual)


def fault(module: Mapping[str, Any], release: str, *, image: bool) -> str:
    """What is wrong with a module for a kernel; empty if nothing. Fields that older probes lack are as if right."""
    if not module.get("registered", True):
        # a source that dkms doesn't know. On a node somebody may have taken it out; in an image nobody has put it in
        return "not built" if image and module["wanted"] else ""
    if release not in module["installed"]:
        return "not built"
    if lost := module.get("missing", {}).get(release):
        return f"installed, and modprobe doesn't find {', '.join(lost)}"
    prefix = f"/lib/modules/{release}/"
    for one in module.get("built", ()):
        if one["path"].startswith(prefix) and one["kernel"] != release:
            return f"{one['name']} is for {one['kernel'] or 'no kernel that modinfo can name'}"
    return ""


def _not_built(node: Node, release: str, module: Mapping[str, Any], actual: str) -> Finding:
    name = f"{module['module']}/{module['version']}"
    log = f"/var/lib/dkms/{name}/build/make.log"
    return Finding(
        node=node.name, check="kernel.dkms-built", severity=Severity.FAIL, fact=f"{name} for {release}",
        expected="built and installed", actual=actual,
        evidence=(f"{log}: {module['error']}",) if module["error"] else ("/var/lib/dkms has no build of it",)
        if actual == "not built" else (f"/lib/modules/{release}/modules.dep",),
        remedy=f"on {{nodes}}: dkms install {name} -k {release}; if it can't be built, lock another pair",
    )  # fmt: skip


def locked_releases(lock: Lock) -> list[str]:
    """The releases (uname -r) of the lock's kernel images: linux-image-RELEASE, also -unsigned-RELEASE."""
    releases = set()
    for package in lock.family("kernel"):
        if package.name.startswith("linux-image-"):
            release = package.name.removeprefix("linux-image-").removeprefix("unsigned-").removesuffix("-unsigned")
            if release[0].isdigit():  # linux-image-amd64 is a metapackage
                releases.add(release)
    return sorted(releases)
