"""The kernel: one release, with its headers, that the driver builds for, and that nothing moves by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from goldsmith.lint.facts import Facts
from goldsmith.lint.subject import Subject
from goldsmith.model.finding import Severity
from goldsmith.model.image import BASE
from goldsmith.model.rule import Hit, Rule

K1 = Rule(
    "K1", Severity.FAIL, "the driver's module builds for the kernel", "GoogleCloudPlatform/cluster-toolkit#5289",
    "another driver branch, or another kernel",
)  # fmt: skip
K3 = Rule(
    "K3", Severity.FAIL, "every kernel that may boot has its headers, where DKMS builds modules",
    "GoogleCloudPlatform/compute-gpu-installation#25", "add linux-headers-RELEASE to kernel.packages",
)  # fmt: skip
K4 = Rule(
    "K4", Severity.FAIL, "a kernel's image, modules and headers are one set, that is held and moved together",
    "awslabs/amazon-eks-ami#1180", "name them in kernel.packages, all of one release",
)  # fmt: skip
K6 = Rule(
    "K6", Severity.FAIL, "kernel.release is a kernel that the packages bring", "how uname -r and dpkg name a kernel",
    "name linux-image-RELEASE in kernel.packages, or correct kernel.release",
)  # fmt: skip
K7 = Rule(
    "K7", Severity.WARN, "no package brings whichever kernel is the newest",
    "GoogleCloudPlatform/compute-gpu-installation#25; GoogleCloudPlatform/cluster-toolkit#4409",
    "name the packages of one release instead, such as linux-image-6.8.0-90-generic",
)  # fmt: skip
# what is in every kernel package's name: 6.8.0-90-generic, 6.12.117+deb13-amd64
RELEASE = r"\d+\.\d+\.\d+[A-Za-z0-9.+~_-]*"
IMAGE = re.compile(rf"linux-image-(?:unsigned-)?({RELEASE})")
PART = re.compile(rf"linux-(?:image-unsigned|image|headers|modules-extra|modules)-({RELEASE})")
DKMS = r"(.*-)?dkms(-.*)?"
# metapackages that DKMS packages come with
BUILDS = r"nvidia-open(-\d+)?|cuda-drivers(-\d+)?|doca-ofed"


def lint(subject: Subject) -> Iterator[Hit]:
    yield from _moving(subject)
    kernels = {match[1]: name for name in subject.packages if (match := IMAGE.fullmatch(name))}
    yield from _release(subject, kernels)
    yield from _headers(subject, kernels)
    yield from _one_set(subject)
    yield from bad_pairs(subject)


def _moving(subject: Subject) -> Iterator[Hit]:
    # what the lock has beside is exact already: only what a person wrote moves at the next lock
    for one in subject.named.values():
        for fact in subject.facts.moving_kernels.values():
            if re.fullmatch(fact.pattern, one.name):
                yield K7.hit(f"{one.name} is no kernel, it follows the newest: {fact.why}", *one.field, facts=(fact,))


def _release(subject: Subject, kernels: dict[str, str]) -> Iterator[Hit]:
    kernel, field = subject.image.kernel, ("kernel", "release")
    if kernel is None:
        driver = subject.image.stack.driver
        if driver and driver.flavor and not kernels:
            yield K6.hit(
                f"the driver has {driver.flavor} kernel modules, and the image has no kernel to build them for",
                "stack", "driver", "flavor", severity=Severity.UNKNOWN,
                remedy="add kernel with its release and packages; or leave the flavor out, for a userland alone",
            )  # fmt: skip
    elif subject.lock and subject.lock.kernel and subject.lock.kernel != kernel.release:
        yield K6.hit(f"kernel.release is {kernel.release}, the lock was made for {subject.lock.kernel}", *field)
    elif kernel.release not in kernels:
        if kernels or subject.lock:
            has = ", ".join(sorted(kernels.values())) or "none"
            yield K6.hit(f"kernel.release is {kernel.release}, and of kernels the image has {has}", *field)
        else:
            yield K6.hit(
                f"kernel.release is {kernel.release}, and no package here is a kernel's by its name", *field,
                severity=Severity.UNKNOWN,
            )  # fmt: skip


def _headers(subject: Subject, kernels: dict[str, str]) -> Iterator[Hit]:
    builds = subject.matching(DKMS) or subject.matching(BUILDS)
    if not builds:
        return
    declared = [subject.image.kernel.release] if subject.image.kernel else []
    for release in sorted({*kernels, *declared}):
        if f"linux-headers-{release}" not in subject.packages:
            image = subject.packages.get(kernels.get(release, ""))
            yield K3.hit(
                f"kernel {release} has no linux-headers-{release}, and {builds[0]} builds a module for it",
                *(image.field if image and image.field else ("kernel", "packages")),
                package=image.package if image and not image.field else "",
                remedy=f"add linux-headers-{release} to kernel.packages",
            )  # fmt: skip


def _one_set(subject: Subject) -> Iterator[Hit]:
    kernel = subject.image.kernel
    for one in subject.packages.values():
        match = PART.fullmatch(one.name)
        if not match or kernel is None:
            continue
        # the headers that flavors share: linux-headers-6.8.0-90, linux-headers-6.12.117+deb13-common
        shared = re.sub(r"-common(-rt)?$", "", match[1])
        mine = match[1] == kernel.release or kernel.release.startswith(f"{shared}-")
        if one.family == "kernel" and not mine:
            yield K4.hit(f"{one.name} is in the kernel's set, whose release is {kernel.release}", *one.field,
                         package=one.package)  # fmt: skip
        elif one.family != "kernel" and match[1] == kernel.release:
            where = "of the distribution's base" if one.family is None and one.repository == BASE else "of another set"
            yield K4.hit(f"{one.name} is {where}, and isn't held with kernel {kernel.release}", *one.field,
                         package=one.package)  # fmt: skip


def bad_pairs(subject: Subject) -> Iterator[Hit]:
    """K1: kernel and driver that somebody has seen fail together. Not where the image patches the module: whoever
    wrote the patch knows, and the build tells."""
    kernels = {match[1] for name in subject.packages if (match := IMAGE.fullmatch(name))}
    driver = subject.version("driver")
    declared = [subject.image.kernel.release] if subject.image.kernel else []
    patched = [one.module for one in subject.image.dkms.patches]
    for release in sorted({*kernels, *declared}) if driver else ():
        for fact in subject.facts.kernel_pairs.values():
            if (
                driver
                and fact.about(driver.version)
                and re.fullmatch(fact.kernel, release)
                and (fact.package is None or subject.matching(fact.package))
                and not any(re.fullmatch(fact.module, name) for name in patched)
            ):
                yield K1.hit(f"driver {driver} with kernel {release}: {fact.why}", *driver.field,
                             package=driver.package, facts=(fact,))  # fmt: skip


def good_pairs(facts: Facts, release: str) -> list[str]:
    """A sentence of the drivers whose modules somebody has built for the kernel; none where nobody has."""
    good = [name for name, fact in facts.kernel_builds.items() if re.fullmatch(fact.kernel, release)]
    return [f"known to build for {release}: {', '.join(good)}"] if good else []
