"""Is the driver one version: module loaded, module on disk, libraries, fabric manager, lock?

Full versions are compared, never the branch: 530.30.02 and 530.41.03 don't work together (NVIDIA/gpu-operator#544).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from goldsmith import Finding, Lock, Node, Severity, upstream

# libcuda1, libnvidia-ml1, libnvidia-tesla-535-cuda1, libnvidia-compute-570-server
LIBRARY_PACKAGE = re.compile(
    r"lib(nvidia-(tesla-)?(\d+-)?)?(cuda|ml)1|libnvidia-compute-\d+(-server)?|libnvidia-compute"
)
MODULE_PACKAGE = re.compile(r".*nvidia.*dkms|linux-modules-nvidia-")


def check(node: Node, lock: Lock, facts: Mapping[str, Any]) -> Iterator[Finding]:
    versions = sorted({one["version"] for one in facts["libraries"] if not one["compat"]})
    used = loaded_libraries(facts)
    yield from _one_library_version(node, versions, facts)
    yield from _library_matches_lock(node, lock, used or versions, facts)
    yield from _loader(node, lock, facts)
    if facts["own"]:
        yield from _module_loaded(node, facts)
        yield from _module_matches_library(node, used or versions, facts)
        yield from _fabricmanager(node, facts)
    yield from _module_on_disk(node, lock, used or versions, facts)


def driver_version(lock: Lock) -> str | None:
    """The upstream version of the driver's libraries in the lock, None if the image has no driver."""
    for package in lock.family("driver"):
        if LIBRARY_PACKAGE.fullmatch(package.name):
            return upstream(package.version)
    return None


def loaded_libraries(facts: Mapping[str, Any]) -> list[str]:
    """The versions of those libraries that the dynamic loader takes."""
    taken = set(facts["loader"].values())
    return sorted({one["version"] for one in facts["libraries"] if one["path"] in taken and not one["compat"]})


def _paths(facts: Mapping[str, Any]) -> tuple[str, ...]:
    paths = tuple(one["path"] for one in facts["libraries"] if not one["compat"])
    return paths or ("no libcuda.so.* or libnvidia-ml.so.* in the system's folders",)


def _one_library_version(node: Node, versions: list[str], facts: Mapping[str, Any]) -> Iterator[Finding]:
    if len(versions) > 1:
        # a .run installer beside the packages leaves this (Azure/azhpc-images#86)
        yield Finding(
            node=node.name, check="nvidia_driver.one-library-version", severity=Severity.FAIL,
            fact="driver libraries", expected="one version", actual=" and ".join(versions), evidence=_paths(facts),
            remedy="remove what isn't the lock's (nvidia-uninstall, if a .run installer was used), then "
                   "goldsmith deploy {site} --limit {nodes}",
        )  # fmt: skip


def _library_matches_lock(node: Node, lock: Lock, versions: list[str], facts: Mapping[str, Any]) -> Iterator[Finding]:
    expected = driver_version(lock)
    if expected and versions != [expected]:
        yield Finding(
            node=node.name, check="nvidia_driver.library-matches-lock", severity=Severity.FAIL,
            fact="driver libraries", expected=expected, actual=" and ".join(versions) or "none",
            source=f"images/{lock.image}/image.lock", evidence=_paths(facts),
            remedy="goldsmith deploy {site} --limit {nodes}",
        )  # fmt: skip
    smi = facts["nvidia_smi"]
    if expected and smi and smi["version"] and smi["version"] != expected:
        yield Finding(
            node=node.name, check="nvidia_driver.library-matches-lock", severity=Severity.FAIL, fact="nvidia-smi",
            expected=expected, actual=smi["version"], source=f"images/{lock.image}/image.lock",
            evidence=(f"the version in {smi['path']}",), remedy="goldsmith deploy {site} --limit {nodes}",
        )  # fmt: skip


def _loader(node: Node, lock: Lock, facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Libraries that the loader takes and that _library_matches_lock can't judge by their versions."""
    expected = driver_version(lock)
    if not expected:
        return
    common: dict[str, Any] = {
        "node": node.name, "check": "nvidia_driver.library-matches-lock", "source": f"images/{lock.image}/image.lock",
    }  # fmt: skip
    if facts["loader_error"]:
        yield Finding(
            severity=Severity.UNKNOWN, fact="driver libraries", expected=expected, remedy="on {nodes}: ldconfig",
            actual="the loader's cache can't be read", evidence=(facts["loader_error"],), **common,
        )  # fmt: skip
    known = {one["path"]: one for one in facts["libraries"]}
    locked = {path: file for one in lock.family("driver") for path, file in one.files.items()}
    for soname, path in sorted(facts["loader"].items()):
        files = {one: file for one, file in locked.items() if f"/{soname[:-1]}" in one}
        version = known[path]["version"] if path in known else None
        told = version not in (None, expected) and not known[path]["compat"]
        if told or (path in files and files[path].link is None) or (not files and version == expected):
            continue
        yield Finding(
            severity=Severity.FAIL if files or version else Severity.UNKNOWN, fact=soname,
            expected=f"{expected} of the locked package", evidence=("ldconfig -p",),
            actual=f"{version or 'of unknown version'}: {path}, of no locked package, and the loader takes it",
            remedy="goldsmith deploy {site} --limit {nodes}" if path in files
                   else "on {nodes}: move it away, or what leads to it in /etc/ld.so.conf.d; then ldconfig", **common,
        )  # fmt: skip


def _module_loaded(node: Node, facts: Mapping[str, Any]) -> Iterator[Finding]:
    if facts["gpus"] and not facts["loaded"]:
        on_disk = next((one for one in facts["on_disk"] if one["running"]), None)
        there = on_disk and on_disk["path"]
        evidence = [f"{len(facts['gpus'])} GPU(s) on PCI, first {facts['gpus'][0]['address']}"]
        evidence += ["nouveau is loaded"] if facts["nouveau"] else []
        evidence += [f"module on disk: {there or 'none for the running kernel'}"]
        yield Finding(
            node=node.name, check="nvidia_driver.module-loaded", severity=Severity.FAIL, fact="module nvidia",
            expected="loaded", actual="not loaded", evidence=tuple(evidence),
            remedy="on {nodes}: modprobe nvidia; dmesg says why not" if there
                   else "build the module for the running kernel, or boot the locked one",
        )  # fmt: skip


def _module_matches_library(node: Node, versions: list[str], facts: Mapping[str, Any]) -> Iterator[Finding]:
    module = facts["loaded"]
    if not module or not versions or versions == [module["version"]]:
        return
    on_disk = next((one for one in facts["on_disk"] if one["running"]), None)
    # where the old module is what the next boot loads too, a reboot doesn't heal it
    # (oddmario/NVIDIA-Ubuntu-Driver-Guide#4)
    healed = on_disk is not None and [on_disk["version"]] == versions
    yield Finding(
        node=node.name, check="nvidia_driver.module-matches-library", severity=Severity.FAIL, fact="driver",
        expected=f"module {' and '.join(versions)}, as the libraries", actual=f"module {module['version']}",
        evidence=("/proc/driver/nvidia/version", *_paths(facts),
                  f"module on disk: {on_disk['version'] if on_disk else 'unknown'}"),
        remedy="reboot {nodes}, or unload the module when no job runs" if healed
               else "goldsmith deploy {site} --limit {nodes}, then reboot; look for an old module in the initramfs",
    )  # fmt: skip


def _module_on_disk(node: Node, lock: Lock, versions: list[str], facts: Mapping[str, Any]) -> Iterator[Finding]:
    """For the kernel that boots next, where this node or this image is to have a module at all."""
    packaged = any(MODULE_PACKAGE.match(package.name) for package in lock.family("driver"))
    if not (facts["gpus"] or facts["loaded"] or packaged):
        return
    found = list(facts["on_disk"])
    target = lock.kernel if node.target == "image" and packaged else None
    if target and target not in [one["kernel"] for one in found]:
        found.append({"kernel": target, "next": False, "path": None, "version": None, "error": None})
    for module in found:
        if not module["next"] and module["kernel"] != target:
            continue
        if module["error"]:
            severity, actual = Severity.UNKNOWN, f"{module['path']}: {module['error']}"
        elif not module["path"]:
            severity, actual = Severity.FAIL, "no module"
        elif versions and [module["version"]] != versions:
            severity, actual = Severity.FAIL, f"module {module['version']}"
        else:
            continue
        yield Finding(
            node=node.name, check="nvidia_driver.module-on-disk", severity=severity,
            fact=f"module for {module['kernel']}, which {'boots next' if module['next'] else 'the image is for'}",
            expected=f"module {' and '.join(versions)}".strip(), actual=actual,
            evidence=(f"/lib/modules/{module['kernel']}/modules.dep",),
            remedy="on {nodes}: dkms autoinstall -k " + module["kernel"] + "; its make.log says why it can't be built",
        )  # fmt: skip


def _fabricmanager(node: Node, facts: Mapping[str, Any]) -> Iterator[Finding]:
    if not facts["nvswitches"] or not facts["loaded"]:
        return
    driver = facts["loaded"]["version"]
    installed = sorted({upstream(one["version"]) for one in facts["fabricmanager"]})
    # another version refuses to start, none at all is CUDA error 802 while nvidia-smi looks healthy
    # (NVIDIA/gpu-operator#544, aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop#28)
    if installed != [driver]:
        yield Finding(
            node=node.name, check="nvidia_driver.fabricmanager-matches", severity=Severity.FAIL,
            fact="nvidia-fabricmanager", expected=f"{driver}, as the driver",
            actual=" and ".join(installed) or "not installed",
            evidence=(f"{len(facts['nvswitches'])} NVSwitches on PCI",
                      *(f"{one['package']} {one['version']}" for one in facts["fabricmanager"])),
            remedy="lock it as stack.fabricmanager, then goldsmith deploy {site} --limit {nodes}",
        )  # fmt: skip
