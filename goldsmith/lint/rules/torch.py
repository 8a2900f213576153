"""PyTorch in Python environments: its wheels bring a CUDA and an NCCL of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from goldsmith.lint.facts import Fact
from goldsmith.lint.rules.cuda import judged
from goldsmith.lint.subject import Field, Known, Subject, older, release
from goldsmith.lint.toolkit import fit, helped, minor, runtime_release
from goldsmith.model.finding import Severity
from goldsmith.model.rule import Hit, Rule
from goldsmith.model.stack import Environment

T1 = Rule(
    "T1", Severity.WARN, "the NCCL that PyTorch brings is the system's",
    "pytorch/pytorch#119072; rapidsai/cugraph#4465; verl#6621",
    "lock the system's NCCL at the version of PyTorch's wheel, so that nccl-tests measures what training runs",
)  # fmt: skip
T2 = Rule(
    "T2", Severity.FAIL, "one nvidia-nccl-cu* wheel in an environment", "rwth-i6/returnn#1802",
    "require one of them: both write nvidia/nccl/lib/libnccl.so.2, and the last one installed stays",
)  # fmt: skip
T3 = Rule(
    "T3", Severity.FAIL, "the driver runs the CUDA that PyTorch brings",
    "docs.nvidia.com/deploy/cuda-compatibility", "a newer driver, or a PyTorch that was built for an older CUDA",
)  # fmt: skip
T5 = Rule(
    "T5", Severity.UNKNOWN, "which CUDA and NCCL a PyTorch brings is known", "goldsmith/lint/facts.yaml, torch",
    "pin torch==X.Y.Z in requirements; lock the image, the lock has its wheels; or add it to the facts",
)  # fmt: skip
_NCCL = re.compile(r"nvidia-nccl(-cu\d+)?")
_RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")
_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^]]*\])?\s*(===?\s*(?P<version>[0-9][^;,\s]*))?")


@dataclass(frozen=True)
class Brings:
    """What an environment's PyTorch brings. cuda: a toolkit release. Each None where it isn't known."""

    torch: str
    cuda: str | None
    nccl: str | None
    facts: tuple[Fact, ...] = ()


def lint(subject: Subject) -> Iterator[Hit]:
    for name, environment in subject.environments():
        field: Field = ("python", name)
        versions = _versions(subject, name, environment)
        yield from _two_nccls(name, versions, field)
        if "torch" in versions:
            index = next((i for i, line in enumerate(environment.requirements) if _project(line) == "torch"), None)
            place: Field = field if index is None else (*field, "requirements", index)
            yield from _torch(subject, name, _brings(subject, environment, versions), place)


def _torch(subject: Subject, name: str, brings: Brings, field: Field) -> Iterator[Hit]:
    what = f"torch {brings.torch} of the environment {name}"
    for part, known in (("CUDA", brings.cuda), ("NCCL", brings.nccl)):
        if known is None and subject.version("driver" if part == "CUDA" else "nccl"):
            yield T5.hit(f"which {part} comes with {what} isn't known", *field, facts=brings.facts)
    driver = subject.version("driver")
    if driver and brings.cuda:
        found = fit(subject.facts, driver.version, brings.cuda)
        if found.verdict == "too old":
            if not helped(subject, brings.cuda):
                yield T3.hit(
                    f"{what} is built for CUDA {brings.cuda}, which needs driver {found.least}; the image has {driver}",
                    *field, facts=(*brings.facts, *found.facts),
                )  # fmt: skip
        else:
            yield from judged(subject, driver, brings.cuda, f"CUDA {brings.cuda}, in {what},", Known("", field))
    system = subject.version("nccl")
    if system and brings.nccl and (older(system.version, brings.nccl) or older(brings.nccl, system.version)):
        yield T1.hit(
            f"{what} brings NCCL {brings.nccl}, the system's is {system}. PyTorch loads its own, through the wheel's "
            "RPATH; the system's is for nccl-tests and MPI programs, which then measure another NCCL than training "
            "runs. In one process, the first to be loaded serves both",
            *system.field, package=system.package, facts=brings.facts,
        )  # fmt: skip


def _two_nccls(name: str, versions: Mapping[str, str | None], field: Field) -> Iterator[Hit]:
    both = sorted(project for project in versions if _NCCL.fullmatch(project))
    if len(both) > 1:
        wheels = " and ".join(" ".join(filter(None, (one, versions[one]))) for one in both)
        yield T2.hit(f"the environment {name} has {wheels}", *field)


def _versions(subject: Subject, name: str, environment: Environment) -> dict[str, str | None]:
    """Project → version: of the lock, else of the requirements, where None is a version that isn't pinned."""
    locked = subject.lock.environments.get(name) if subject.lock else None
    if locked:
        return {project: wheel.version for project, wheel in locked.wheels.items()}
    found: dict[str, str | None] = {}
    for line in environment.requirements:
        match = _PINNED.match(line)
        if match:
            found[_project(line)] = match["version"]
    return found


def _project(requirement: str) -> str:
    """The normalised name of a requirement's project."""
    match = _PINNED.match(requirement)
    return re.sub(r"[-_.]+", "-", match["name"]).lower() if match else ""


def _brings(subject: Subject, environment: Environment, versions: Mapping[str, str | None]) -> Brings:
    torch = versions["torch"]
    public, _, local = (torch or "").partition("+")
    cuda, nccl = _wheel(versions, _RUNTIME), _wheel(versions, _NCCL)
    # 2.5 is 2.5.0, to pip
    known = subject.facts.torch.get(public) or subject.facts.torch.get(f"{public}.0")
    # an index of its own, or a local version, has builds for another CUDA than the default one
    special = environment.index or local
    variant = re.search(r"(?:^|/)cu(\d+)(\d)/?$", local or environment.index or "")
    if cuda:
        cuda = runtime_release(subject.facts, cuda)
    elif variant:
        cuda = f"{variant[1]}.{variant[2]}"
    if known and not special:
        cuda = cuda or runtime_release(subject.facts, known.cuda)
        nccl = nccl or known.nccl
    elif known and cuda and minor(runtime_release(subject.facts, known.cuda)) == minor(cuda):
        nccl = nccl or known.nccl
    return Brings(torch or "(not pinned)", cuda, nccl, (known,) if known else ())


def _wheel(versions: Mapping[str, str | None], project: re.Pattern[str]) -> str | None:
    found = (version for name, version in versions.items() if version and project.fullmatch(name))
    return next((text for version in found if (text := release(version))), None)
