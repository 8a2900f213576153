"""Driver and CUDA toolkit: does it run, and does all of it?"""

from __future__ import annotations

from collections.abc import Iterator

from goldsmith.lint.subject import Known, Subject
from goldsmith.lint.toolkit import Fit, compat, fit, helped, minor, toolkits
from goldsmith.model.finding import Severity
from goldsmith.model.rule import Hit, Rule

COMPATIBILITY = "docs.nvidia.com/deploy/cuda-compatibility"
MVC1 = Rule(
    "MVC1", Severity.FAIL, "the driver runs programs of the CUDA major at all",
    COMPATIBILITY, "a newer driver; or, on data center GPUs, the cuda-compat package of this release",
)  # fmt: skip
MVC2 = Rule(
    "MVC2", Severity.WARN, "the driver isn't older than the one that the CUDA release came with",
    f"{COMPATIBILITY}, minor version compatibility; NVIDIA/nccl#1705",
    "a newer driver or an older toolkit; else build for the GPUs' own architectures, and expect no new features",
)  # fmt: skip
MVC3 = Rule(
    "MVC3", Severity.FAIL, "cuda-compat is for data center GPUs alone: on others CUDA ends with error 804",
    f"{COMPATIBILITY}/forward-compatibility", "leave cuda-compat out, and take a driver that fits the toolkit",
)  # fmt: skip


def lint(subject: Subject) -> Iterator[Hit]:
    driver = subject.version("driver")
    for toolkit in toolkits(subject) if driver else ():
        assert driver is not None
        yield from judged(subject, driver, toolkit.version, f"CUDA {toolkit}", toolkit)
    yield from _compat(subject)


def judged(subject: Subject, driver: Known, release: str, what: str, place: Known) -> Iterator[Hit]:
    """What is to be said of a driver under a CUDA release. what: whose release; place: where that stands."""
    found = fit(subject.facts, driver.version, release)
    if found.verdict in ("too old", "limited") and helped(subject, release):
        return
    if found.verdict == "too old":
        yield MVC1.hit(
            f"driver {driver} is older than {found.least}, the oldest for CUDA {release.split('.')[0]}: "
            f"programs of {what} don't start",
            *driver.field, package=driver.package, facts=found.facts,
        )  # fmt: skip
    elif found.verdict == "limited":
        yield MVC2.hit(_limits(driver, what, found), *driver.field, package=driver.package, facts=found.facts)
    elif found.verdict == "unknown":
        yield MVC2.hit(
            f"which driver {what} needs isn't known here, so driver {driver} can't be judged",
            *place.field, package=place.package, severity=Severity.UNKNOWN,
            remedy="look it up in that release's notes, and add it to goldsmith/lint/facts.yaml",
        )  # fmt: skip


def _limits(driver: Known, what: str, found: Fit) -> str:
    return (
        f"driver {driver} is older than {found.needs}, which {what} came with. Programs run, for it is at least "
        f"{found.least}; but PTX that is compiled on the node (JIT) fails, and so do features of the newer driver, "
        "such as NVLS in NCCL"
    )


def _compat(subject: Subject) -> Iterator[Hit]:
    models = [subject.facts.gpus[one] for one in subject.image.hardware.gpus if one in subject.facts.gpus]
    others = [name for name in subject.image.hardware.gpus
              if name in subject.facts.gpus and not subject.facts.gpus[name].data_center]  # fmt: skip
    for package, release in compat(subject):
        one = subject.packages[package]
        if others:
            yield MVC3.hit(
                f"{package} for CUDA {minor(release)}, and the image is for {', '.join(others)}", *one.field,
                package=one.package, facts=tuple(models),
            )  # fmt: skip
        elif not subject.image.hardware.gpus:
            yield MVC3.hit(
                f"{package}, and the image doesn't say for which GPUs it is", *one.field, package=one.package,
                severity=Severity.UNKNOWN, remedy="name the GPUs in hardware.gpus",
            )  # fmt: skip
