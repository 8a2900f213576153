"""The driver against the GPUs: which kernel modules, and from which version on."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from goldsmith.lint.subject import Field, Subject, older
from goldsmith.model.finding import Severity
from goldsmith.model.rule import Hit, Rule
from goldsmith.model.stack import Driver

GUIDE = "NVIDIA driver installation guide, kernel modules"
OK1 = Rule(
    "OK1", Severity.FAIL, "Blackwell and Grace Hopper have the open kernel modules: there are no others for them",
    f"{GUIDE}; getsolus/packages#5575",
    "set stack.driver.flavor: open, and take the open modules' packages",
)  # fmt: skip
OK2 = Rule(
    "OK2", Severity.FAIL, "GPUs older than Turing have the proprietary kernel modules: the open ones need its GSP",
    f"{GUIDE}; NVIDIA/open-gpu-kernel-modules#19; awslabs/amazon-eks-ami#1697",
    "set stack.driver.flavor: proprietary, and take those modules' packages",
)  # fmt: skip
OK5 = Rule(
    "OK5", Severity.FAIL, "the packages are of the flavor that the image says", GUIDE,
    "change stack.driver.flavor or the packages: one of them isn't what was meant",
)  # fmt: skip
GPU1 = Rule(
    "GPU1", Severity.FAIL, "the driver knows the GPU", "NVIDIA's release notes of data center drivers",
    "a newer driver",
)  # fmt: skip
GPU2 = Rule(
    "GPU2", Severity.UNKNOWN, "the GPU is one that the facts know", "goldsmith/lint/facts.yaml, gpus",
    "correct the name (as NVIDIA writes it: H100, GB200), or add it to the facts with its source",
)  # fmt: skip
OPEN = r"nvidia-.*-open(-.*)?|nvidia-open(-.*)?|linux-modules-nvidia-.*-open-.*"
# not nvidia-driver itself: Debian's takes modules of either flavor
PROPRIETARY = (
    r"nvidia-driver-\d+(-server)?|nvidia-(dkms|kernel-source)(-\d+)?(-server)?|nvidia-kernel-dkms|cuda-drivers(-\d+)?"
    r"|linux-modules-nvidia-\d+-(?!(.*-)?open-).*"
)


def lint(subject: Subject) -> Iterator[Hit]:
    facts, driver = subject.facts, subject.image.stack.driver
    version = subject.version("driver")
    for index, name in enumerate(subject.image.hardware.gpus):
        field: Field = ("hardware", "gpus", index)
        gpu = facts.gpus.get(name)
        if gpu is None:
            near = difflib.get_close_matches(name, facts.gpus, n=3)
            yield GPU2.hit(
                f"nothing is known of a GPU {name}, so nothing that depends on it was checked"
                + (f"; near it are {', '.join(near)}" if near else ""), *field,
            )  # fmt: skip
        elif subject.members("driver"):
            yield from _modules(subject, driver.flavor if driver else None, name)
            least = facts.gpu_min_driver.get(name)
            if least and version and older(version.version, least.driver):
                yield GPU1.hit(f"{name} needs driver {least.driver} or later, the image has {version}",
                               *version.field, package=version.package, facts=(least,))  # fmt: skip
    if driver:
        yield from _packages(subject, driver)


def _modules(subject: Subject, flavor: str | None, name: str) -> Iterator[Hit]:
    gpu = subject.facts.gpus[name]
    architecture = subject.facts.architectures[gpu.architecture]
    needs, place = architecture.modules, ("stack", "driver", "flavor")
    if needs is None or flavor == needs:
        return
    rule = OK1 if needs == "open" else OK2
    if flavor:
        yield rule.hit(
            f"{name} ({gpu.architecture}) needs {needs} kernel modules, the image has {flavor} ones", *place,
            facts=(gpu, architecture),
        )  # fmt: skip
    elif subject.image.kernel:
        yield rule.hit(
            f"{name} ({gpu.architecture}) needs {needs} kernel modules, the image doesn't say which it has", *place,
            facts=(gpu, architecture), severity=Severity.UNKNOWN, remedy=f"set stack.driver.flavor: {needs}",
        )  # fmt: skip


def _packages(subject: Subject, driver: Driver) -> Iterator[Hit]:
    others = {"open": ("proprietary", PROPRIETARY), "proprietary": ("open", OPEN)}
    other, pattern = others[driver.flavor] if driver.flavor else ("", "")
    for package in subject.matching(pattern):
        yield OK5.hit(f"the flavor is {driver.flavor}, and {package} is of the {other} one", *package.field,
                      package=package.package)  # fmt: skip
