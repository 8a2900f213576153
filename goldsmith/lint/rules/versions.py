"""What can't be judged because it isn't known, releases that are known to be bad, and one driver in one version."""

from __future__ import annotations

from collections.abc import Iterator

from goldsmith.lint.subject import Subject, older, release
from goldsmith.lint.toolkit import COMPAT, toolkits
from goldsmith.model.finding import Severity
from goldsmith.model.rule import Hit, Rule

V1 = Rule(
    "V1", Severity.UNKNOWN, "the version of what other rules judge is known", "goldsmith/lint/subject.py",
    "pin it in image.yml, or lock the image",
)  # fmt: skip
V2 = Rule(
    "V2", Severity.FAIL, "driver libraries and kernel module have one version",
    "oddmario/NVIDIA-Ubuntu-Driver-Guide#4; lyulyul/shine-cluster#30",
    "lock anew, with one version for all of stack.driver",
)  # fmt: skip
CT1 = Rule(
    "CT1", Severity.FAIL, "the container toolkit isn't a release that broke jobs",
    "NVIDIA/nvidia-container-toolkit#1091", "another release",
)  # fmt: skip
CT2 = Rule(
    "CT2", Severity.WARN, "the container toolkit has no hole that is known",
    "NVIDIA security bulletin 5659", "a newer release",
)  # fmt: skip
JUDGED = ("driver", "fabricmanager", "imex", "nccl", "container_toolkit")


def lint(subject: Subject) -> Iterator[Hit]:
    for name in JUDGED:
        if subject.family(name) and subject.version(name) is None:
            yield V1.hit(f"which version of {name} the image gets isn't known: no pin and no lock", "stack", name,
                         "version", remedy=f"set stack.{name}.version, or lock the image")  # fmt: skip
    cuda = subject.family("cuda")
    if cuda and not toolkits(subject) and not all(COMPAT.fullmatch(one) for one in cuda.packages):
        yield V1.hit("which CUDA release the image gets isn't known", "stack", "cuda", "version",
                     remedy="set stack.cuda.version, or take packages with the release in their names")  # fmt: skip
    yield from _one_driver(subject)
    yield from _container_toolkit(subject)


def _one_driver(subject: Subject) -> Iterator[Hit]:
    """All that the lock has of the driver's set, save what has a pin of its own."""
    family = subject.family("driver")
    members = [one for one in subject.packages.values()
               if one.locked and one.family == "driver" and one.version and family
               and one.name not in family.versions]  # fmt: skip
    if not members:
        return
    # the first one that image.yml names says which version was meant
    first = next((one for one in members if one.name in subject.named), members[0])
    for one in members:
        if release(one.version or "") != release(first.version or ""):
            yield V2.hit(f"{one} beside {first}", *(one.field or ("stack", "driver")), package=one.package)


def _container_toolkit(subject: Subject) -> Iterator[Hit]:
    version = subject.version("container_toolkit")
    if version is None:
        return
    for bad, fact in subject.facts.container_toolkit_bad.items():
        if not older(version.version, bad) and not older(bad, version.version):
            yield CT1.hit(f"nvidia-container-toolkit {version}: {fact.why}", *version.field, package=version.package,
                          facts=(fact,))  # fmt: skip
    for least, fact in subject.facts.container_toolkit_secure.items():
        if older(version.version, least):
            yield CT2.hit(f"nvidia-container-toolkit {version} is older than {least}. {fact.why}", *version.field,
                          package=version.package, facts=(fact,))  # fmt: skip
