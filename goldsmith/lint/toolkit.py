"""CUDA releases: which ones an image has, and what a driver makes of a release."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from goldsmith.lint.facts import Fact, Facts
from goldsmith.lint.subject import Field, Known, Subject, older, release

# Metapackages of NVIDIA's repository whose version is the release's; any other one has the version of what is in it.
META = re.compile(
    r"cuda(-(toolkit|runtime|libraries|libraries-dev|compiler|tools|demo-suite|minimal-build|command-line-tools))?"
    r"(-\d+-\d+)?"
)
NAMED = re.compile(r"cuda-(?!compat).*-(\d+)-(\d+)|cuda-(\d+)-(\d+)")
COMPAT = re.compile(r"cuda-compat-(\d+)-(\d+)")
RUNTIME = re.compile(r"libcudart\d+|cuda-cudart(-dev)?(-\d+-\d+)?|cuda-nvcc(-\d+-\d+)?")


def toolkits(subject: Subject) -> list[Known]:
    """The CUDA releases of `stack.cuda`, and of packages of CUDA in other sets, each once: several may be installed
    side by side."""
    found: dict[str, Known] = {}
    sets = {path: family.packages for path, family in subject.image.sets.items()}
    for path, packages in {**sets, ("base",): subject.image.base.packages}.items():
        for package in packages:
            named = any(one.fullmatch(package) for one in (META, NAMED, RUNTIME))
            if COMPAT.fullmatch(package) or not (named or path == ("stack", "cuda")):
                continue
            known = subject.pinned(path, package)
            if text := _release_of(subject.facts, package, known.version if known else None):
                field: Field = known.field if known else (*path, "packages")
                found.setdefault(text, Known(text, field, known.package if known else ""))
    # 12.5 that a name alone says is the 12.5.1 that a version says
    return [one for text, one in found.items() if not any(more.startswith(f"{text}.") for more in found)]


def _release_of(facts: Facts, package: str, version: str | None) -> str | None:
    """The toolkit release that a package belongs to, as exactly as can be told."""
    # Debian says it itself: 12.4.127~12.4.1 is the runtime of 12.4.1
    if version and (said := re.search(r"~(\d+\.\d+(\.\d+)?)", version)):
        return said[1]
    if version and META.fullmatch(package) and (text := release(version)):
        return text
    if version and (known := facts.cuda_runtimes.get(release(version) or "")):
        return known.toolkit
    if named := NAMED.fullmatch(package):
        return ".".join(part for part in named.groups() if part)
    text = release(version) if version and RUNTIME.fullmatch(package) else None
    return minor(text) if text else None


def runtime_release(facts: Facts, version: str) -> str:
    """The release of a CUDA runtime: 12.4.127 → 12.4.1, or 12.4 where that isn't known so well."""
    return facts.cuda_runtimes[version].toolkit if version in facts.cuda_runtimes else minor(version)


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


@dataclass(frozen=True)
class Fit:
    """A driver against a CUDA release. needs: the driver that it came with, or None where only the major's minimum is
    known; least: the oldest that runs its programs."""

    verdict: Literal["fits", "limited", "too old", "unknown"]
    needs: str
    least: str
    facts: tuple[Fact, ...]


def fit(facts: Facts, driver: str, toolkit: str) -> Fit:
    major = facts.cuda_majors.get(toolkit.split(".")[0])
    # of its updates the newest that isn't newer than it; an update that isn't known needs no less
    same = [text for text in facts.cuda_toolkits if minor(text) == minor(toolkit) and not older(toolkit, text)]
    own = facts.cuda_toolkits[max(same, key=lambda text: [int(part) for part in text.split(".")])] if same else None
    least, needs = major.min_driver if major else "", own.driver if own else ""
    if major and older(driver, major.min_driver):
        return Fit("too old", needs, least, (major,))
    if major is None or own is None:
        return Fit("unknown", needs, least, ())
    return Fit("limited" if older(driver, own.driver) else "fits", needs, least, (own, major))


def compat(subject: Subject) -> Iterator[tuple[str, str]]:
    """cuda-compat packages of the image, with the release that they make an old driver run."""
    for name in subject.packages:
        if match := COMPAT.fullmatch(name):
            yield name, f"{match[1]}.{match[2]}"


def helped(subject: Subject, toolkit: str) -> bool:
    """Whether a cuda-compat of the image is there for this release."""
    return any(not older(text, minor(toolkit)) for _, text in compat(subject))
