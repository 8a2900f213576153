"""NVSwitches and NVLink domains: the services that a platform needs beside the driver, at its version in full."""

from __future__ import annotations

import re
from collections.abc import Iterator

from goldsmith.lint.subject import Known, Subject, branch, older
from goldsmith.model.finding import Severity
from goldsmith.model.rule import Hit, Rule

GUIDE = "NVIDIA Fabric Manager user guide"
FM1 = Rule(
    "FM1", Severity.FAIL, "the fabric manager has the driver's version, in full",
    "NVIDIA/gpu-operator#544; aws/aws-parallelcluster#3034",
    "give both the same version: the branch alone isn't enough, the fabric manager refuses the driver",
)  # fmt: skip
FM2 = Rule(
    "FM2", Severity.FAIL, "a board with NVSwitches has the fabric manager: without it CUDA ends with error 802",
    "aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop#33",
    "add stack.fabricmanager, at the driver's version",
)  # fmt: skip
FM3 = Rule(
    "FM3", Severity.FAIL, "a board with NVSwitches of the fourth generation has nvlsm beside the fabric manager",
    f"{GUIDE} 1.3.2, 1.5", "add stack.nvlsm with the package nvlsm, from the driver's repository",
)  # fmt: skip
FM4 = Rule(
    "FM4", Severity.FAIL, "an NVL72 rack's nodes have nvidia-imex, at the driver's version, and no fabric manager",
    "Azure/azhpc-images; GoogleCloudPlatform/cluster-toolkit#4657",
    "add stack.imex, at the driver's version in full",
)  # fmt: skip
FM5 = Rule(
    "FM5", Severity.FAIL, "a service's package is of the driver's branch, where its name has one",
    "akash-network/website#632; Ubuntu's nvidia-fabricmanager-535 is an empty package that leads to 580",
    "name the package of the driver's branch",
)  # fmt: skip


def lint(subject: Subject) -> Iterator[Hit]:
    driver = subject.version("driver")
    for service, rule in (("fabricmanager", FM1), ("imex", FM4)):
        for one in subject.members(service) if driver else ():
            own = one.known
            if driver and own and (older(driver.version, own.version) or older(own.version, driver.version)):
                yield rule.hit(f"{service} is {own} ({one.name}), the driver is {driver}", *own.field,
                               package=own.package)  # fmt: skip
        yield from _branch(subject, service, driver)
    # without a driver at all that is what is said (V1)
    if subject.members("driver"):
        yield from _present(subject, driver)


def _branch(subject: Subject, service: str, driver: Known | None) -> Iterator[Hit]:
    for one in subject.named.values() if driver else ():
        match = re.fullmatch(rf"nvidia-{service}-(\d+)", one.name)
        if match and driver and branch(match[1]) != branch(driver.version):
            right = subject.facts.driver_services[service].package(driver.version)
            yield FM5.hit(
                f"{one.name} is of branch {match[1]}, the driver is {driver}", *one.field,
                remedy=f"for driver {driver} it is called {right} in NVIDIA's repository",
            )  # fmt: skip


def _present(subject: Subject, driver: Known | None) -> Iterator[Hit]:
    hardware, field = subject.image.hardware, ("hardware", "platform")
    known = [(name, subject.facts.gpus[name]) for name in hardware.gpus if name in subject.facts.gpus]
    members = {name: subject.members(name) for name in ("fabricmanager", "imex", "nvlsm")}
    has = {name: bool(found) for name, found in members.items()}
    for name, rule in (("fabricmanager", FM2), ("imex", FM4), ("nvlsm", FM3)):
        if members[name] and not any(one.own for one in members[name]):
            yield rule.hit(
                f"whether {members[name][0].name} in stack.{name} is what its place says can't be told by its name",
                "stack", name, "packages", severity=Severity.UNKNOWN,
                remedy="name the package itself, as NVIDIA's repository calls it",
            )  # fmt: skip
    if hardware.platform == "hgx":
        if not has["fabricmanager"]:
            yield FM2.hit("the platform is hgx, and the image has no fabric manager", *field,
                          remedy=_add(subject, "fabricmanager", driver))  # fmt: skip
        for name, gpu in known:
            architecture = subject.facts.architectures[gpu.architecture]
            if architecture.nvlsm and not has["nvlsm"]:
                yield FM3.hit(f"the platform is hgx with {name}, and the image has no nvlsm", *field,
                              facts=(gpu, architecture))  # fmt: skip
    elif hardware.platform == "nvl72":
        if not has["imex"]:
            yield FM4.hit("the platform is nvl72, and the image has no nvidia-imex", *field,
                          remedy=_add(subject, "imex", driver))  # fmt: skip
        if has["fabricmanager"]:
            yield FM4.hit(
                "the platform is nvl72, and the image has a fabric manager: that runs in the rack's switches, "
                "not on its nodes", *field, severity=Severity.WARN, remedy="leave stack.fabricmanager out",
            )  # fmt: skip
    elif hardware.platform is None and not has["fabricmanager"] and not has["imex"]:
        for name, gpu in known:
            if gpu.nvswitch:
                yield FM2.hit(
                    f"{name} comes with NVSwitches and without, and the image doesn't say which", *field,
                    severity=Severity.UNKNOWN, facts=(gpu,), remedy="set hardware.platform: hgx, nvl72 or pcie",
                )  # fmt: skip


def _add(subject: Subject, service: str, driver: Known | None) -> str:
    if driver is None:
        return ""
    package = subject.facts.driver_services[service].package(driver.version)
    return f"add stack.{service} with the package {package} (as NVIDIA's repository calls it), version {driver}"
