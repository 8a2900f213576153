"""What can't be judged because it isn't known, releases that are known to be bad, and one driver in one version."""

from __future__ import annotations

from collections.abc import Iterator

from goldsmith.credentials import short
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
# must have the driver's version in full
EXACT = ("driver", "fabricmanager", "imex")
JUDGED = ("driver", "fabricmanager", "imex", "nccl", "container_toolkit")


def lint(subject: Subject) -> Iterator[Hit]:
    for name in JUDGED:
        yield from _unknown(subject, name)
    yield from _no_driver(subject)
    cuda = subject.family("cuda")
    if cuda and not toolkits(subject) and not all(COMPAT.fullmatch(one) for one in cuda.packages):
        yield V1.hit("which CUDA release the image gets isn't known", "stack", "cuda", "version",
                     remedy="set stack.cuda.version, or take packages with the release in their names")  # fmt: skip
    yield from _one_driver(subject)
    yield from _container_toolkit(subject)


def _unknown(subject: Subject, name: str) -> Iterator[Hit]:
    """What of a set has no version that can be judged. Of the driver and its services each package has to be known,
    for all of them must have one version; elsewhere one tells of the others."""
    members = subject.members(name)
    strict = [one for one in members if one.own] if name in EXACT else []
    unknown = [one for one in strict or members if one.known is None]
    if unknown and (strict or len(unknown) == len(members)):
        first, names = unknown[0], ", ".join(one.name for one in unknown)
        if first.pin and release(first.pin):
            yield V1.hit(
                f"{short(first.pin)} is no whole version of {name} ({names}): no package has it, and nothing can be "
                "judged by it", *first.field, remedy="pin the version in full, such as 580.105.08 for a driver",
            )  # fmt: skip
            return
        field = first.field if first.field[:1] != ("stack",) else ("stack", name, "version")
        yield V1.hit(
            f"which version of {name} ({names}) the image gets isn't known: no pin and no lock", *field,
            remedy=f"set stack.{name}.version, or lock the image" if field[0] == "stack" or name not in EXACT
            else f"move it to stack.{name} and pin it there, or lock the image",
        )  # fmt: skip


def _no_driver(subject: Subject) -> Iterator[Hit]:
    hardware = subject.image.hardware
    beside = [name for name in ("fabricmanager", "imex", "nvlsm") if subject.members(name)]
    if subject.members("driver") or subject.family("driver"):
        return
    if hardware.platform or hardware.gpus:
        what = " ".join(filter(None, (hardware.platform, *hardware.gpus)))
        yield V1.hit(
            f"the image is for {what}, and has no package of a driver: nothing that depends on it was checked",
            "hardware", "platform" if hardware.platform else "gpus",
            remedy="add stack.driver; or leave hardware out, if the driver comes from elsewhere",
        )  # fmt: skip
    elif beside:
        one = subject.members(beside[0])[0]
        yield V1.hit(f"the image has {one.name}, and no driver whose version it could have", *one.field,
                     remedy="add stack.driver")  # fmt: skip


def _one_driver(subject: Subject) -> Iterator[Hit]:
    """All that the lock has of the driver's set, save what has a pin of its own; and what is the driver's by its
    name, wherever it stands."""
    family = subject.family("driver")
    found = {
        one.name: (str(one), one.version, one.field or ("stack", "driver"), one.package)
        for one in subject.packages.values()
        if one.locked and one.family == "driver" and one.version and family and one.name not in family.versions
    }
    for member in subject.members("driver"):
        if member.own and member.known:
            field = member.known.field or member.field
            found.setdefault(member.name, (f"{member.name} {member.known}", member.known.version, field,
                                           member.known.package))  # fmt: skip
    # the first one that image.yml names says which version was meant
    first = next((found[name] for name in found if name in subject.named), next(iter(found.values()), None))
    for said, version, field, package in found.values():
        if first and release(version) != release(first[1]):
            yield V2.hit(f"{said} beside {first[0]}", *field, package=package)


def _container_toolkit(subject: Subject) -> Iterator[Hit]:
    versions = {one.known.version: one.known for one in reversed(subject.members("container_toolkit")) if one.known}
    for version in versions.values():
        for bad, fact in subject.facts.container_toolkit_bad.items():
            if not older(version.version, bad) and not older(bad, version.version):
                yield CT1.hit(f"nvidia-container-toolkit {version}: {fact.why}", *version.field,
                              package=version.package, facts=(fact,))  # fmt: skip
        for least, fact in subject.facts.container_toolkit_secure.items():
            if older(version.version, least):
                yield CT2.hit(f"nvidia-container-toolkit {version} is older than {least}. {fact.why}", *version.field,
                              package=version.package, facts=(fact,))  # fmt: skip
