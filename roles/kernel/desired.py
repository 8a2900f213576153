"""The kernel's packages as one held set, and what is declared of its modules, command line and sysctls."""

from __future__ import annotations

from collections.abc import Iterator

from goldsmith import KernelModule, KernelParameter, Lock, Node, Resource, Sysctl


def desired(node: Node, lock: Lock) -> Iterator[Resource]:
    # image and headers move together, held: one without the other leaves DKMS modules unbuilt
    # (GoogleCloudPlatform/compute-gpu-installation#25)
    yield from lock.family("kernel")
    for name in node["kernel_modules"]:
        yield KernelModule(name)
    for name in node["kernel_blacklist"]:
        yield KernelModule(name, "blacklisted")
    for word in node["kernel_parameters"]:
        yield KernelParameter(word)
    for key, value in node["kernel_sysctls"].items():
        yield Sysctl(key, " ".join(str(value).split()))
