"""A lock: what an image resolved to, every package exact and hashed. images/NAME/image.lock, made by
`goldsmith lock`, never edited by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from goldsmith.errors import GoldsmithError
from goldsmith.model.resource import Package, PackageFile, PythonEnvironment, PythonWheel
from goldsmith.model.stack import Address, ModuleName, PatchFile

# Where a node's apt finds the lock's pool. A role writes the file; the package transaction sees no other source.
POOL_SOURCES = "/etc/apt/sources.list.d/goldsmith.sources"
# What the lock that a node was last brought to had in its families: one `package family` a line. A role writes it
# after the packages; the next transaction may replace exactly these.
FAMILIES = "/var/lib/goldsmith/families"


# A lock is read by root, and what stands in it reaches apt's configuration, command lines and file names: each field
# has a shape, and a hostile lock is refused where it is read.
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=100)]
PackageName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]*$", max_length=200)]
Version = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+:~-]*$", max_length=200)]
Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=500)]
DebFile = Annotated[str, Field(pattern=r"^([A-Za-z0-9_+~%][A-Za-z0-9_.+~%:-]*/)*[A-Za-z0-9_+~%][A-Za-z0-9_.+~%:-]*$")]
Project = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=200)]
WheelVersion = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+!_-]*$", max_length=200)]
Fingerprint = Annotated[str, Field(pattern=r"^[0-9A-F]{40,64}$")]


class LockedFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    size: int = 0
    sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    link: Line | None = None

    @model_validator(mode="after")
    def _file_or_link(self) -> LockedFile:
        if bool(self.sha256) == bool(self.link):
            raise ValueError("has either a sha256 or a link")
        return self


class LockedPackage(BaseModel):
    """One deb. repository: `base` or the image's name for it; origin: label:version/suite as apt names it, e.g.
    `Debian:13.2/stable`; never a host's name. why: `base`, `family NAME`, `role NAME` or `needed by PACKAGE`.

    Of family packages: files: shared libraries and links to them. units: the systemd units that come with it. apart:
    it brings apt preferences, so it is installed in a transaction of its own before the others, which they then
    govern (NVIDIA's nvidia-driver-pinning-*; together it is unsatisfiable, NVIDIA/NemoClaw#8197).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: PackageName
    version: Version
    architecture: Literal["all", "amd64", "arm64"]
    source: PackageName
    sha256: Sha256
    size: int = Field(ge=0)
    filename: DebFile
    repository: Name
    origin: Line
    why: Line
    family: Name | None = None
    files: dict[Annotated[str, Field(pattern=r"^/[^\x00-\x1f]+$")], LockedFile] = {}
    units: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9:_.@\\-]+$")]] = []
    apart: bool = False

    def resource(self, *, held: bool = False, verify: bool = False) -> Package:
        files = {path: PackageFile(file.size, file.sha256, file.link) for path, file in self.files.items()}
        return Package(self.name, self.version, held=held, verify=verify, source=self.source, files=files)


class LockedRepository(BaseModel):
    """Where packages were resolved. uri: as image.yml has it, None for the distribution's own. fingerprint: of the
    key that image.yml names for it. releases: suite → sha256 of its signed release file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    uri: Address | None = None
    fingerprint: Fingerprint | None = None
    releases: dict[Annotated[str, Field(pattern=r"^(/|[A-Za-z0-9.][A-Za-z0-9./_-]*)$")], Sha256]


class LockedWheel(BaseModel):
    """One wheel, the very file that the image's Python and platform take. why: `required`, or `needed by PROJECT`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Project
    version: WheelVersion
    filename: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl$")
    sha256: Sha256
    size: int = Field(ge=0)
    why: Line


class LockedEnvironment(BaseModel):
    """A Python environment: wheels by normalised project name. index: as image.yml has it, None for the default."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    python: str = Field(pattern=r"^3\.[0-9]{1,3}$")
    platform: str = Field(pattern=r"^manylinux_2_[0-9]{1,3}_(x86_64|aarch64)$")
    index: Address | None = None
    wheels: dict[Project, LockedWheel]

    @property
    def digest(self) -> str:
        """What is in it, by name and content; two environments with the same one are the same."""
        wheels = {name: [one.version, one.filename, one.sha256] for name, one in self.wheels.items()}
        return sha256(json.dumps([self.python, wheels], sort_keys=True).encode()).hexdigest()


class LockedPatch(BaseModel):
    """A change to a DKMS module's source: image.yml's words, and the digest of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    module: ModuleName
    file: PatchFile
    sha256: Sha256


class Pool(BaseModel):
    """The apt repository that serves this lock's debs: Release fields and the key it is signed with."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    origin: Name
    suite: Name
    fingerprint: Fingerprint
    key: str


class Lock(BaseModel):
    """image_digest: of the image.yml it was made from; `created`: the newest Release date of the suites, so that
    it doesn't change from run to run. kernel: the release that the image boots, as `uname -r` says it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    schema_: Literal[1] = Field(1, alias="schema")
    image: Name
    image_digest: Sha256
    distribution: Literal["debian", "ubuntu"]
    release: Annotated[str, Field(pattern=r"^[a-z]+$")]
    architecture: Literal["amd64", "arm64"]
    kernel: Annotated[str, Field(pattern=r"^[0-9][A-Za-z0-9.+~_-]*$")] | None = None
    created: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")
    repositories: dict[Name, LockedRepository]
    tools: dict[Name, Line]
    pool: Pool
    packages: dict[PackageName, LockedPackage]
    environments: dict[Name, LockedEnvironment] = {}
    patches: list[LockedPatch] = []

    @field_validator("created")
    @classmethod
    def _a_time(cls, value: str) -> str:
        datetime.fromisoformat(value)  # 2026-02-30 has the pattern as well
        return value

    @property
    def epoch(self) -> int:
        """`created` in seconds since 1970: SOURCE_DATE_EPOCH of all that is made of it, the newest that any file of an
        image may be."""
        return int(datetime.fromisoformat(self.created).timestamp())

    @property
    def digest(self) -> str:
        """The lock's own identity: sha256 of its canonical JSON."""
        return sha256(self.to_text().encode()).hexdigest()

    def to_text(self) -> str:
        """The file's content: sorted, one field a line, nothing that is at its default, so that a diff reads well."""
        data = {"schema": self.schema_, **self.model_dump(by_alias=True, exclude_defaults=True)}
        return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"

    def package(self, name: str) -> LockedPackage:
        try:
            return self.packages[name]
        except KeyError:
            raise GoldsmithError(
                f"package {name} isn't in the lock of image {self.image}",
                where=f"images/{self.image}/image.lock",
                hint=f"add it to images/{self.image}/image.yml, then `goldsmith lock images/{self.image}`",
            ) from None

    def family(self, name: str, *, verify: bool = False) -> Iterator[Package]:
        """The family's packages, exact and held, by name; none if the image hasn't got the family.

        verify: have every probe hash their libraries, however large (NCCL's is 240 MB: 0.2 s of one core).
        """
        for package in self.packages.values():
            if package.family == name:
                yield package.resource(held=True, verify=verify)

    def every_package(self) -> Iterator[Package]:
        """All packages of the image. Those of a family are held, whether or not a role promises that family:
        nvidia-imex, forgotten in a hand-written list of holds, moved alone (GoogleCloudPlatform/cluster-toolkit#4657).
        """
        for package in self.packages.values():
            yield package.resource(held=package.family is not None)

    def python_environments(self) -> Iterator[PythonEnvironment]:
        """The Python environments of the image, wheel by wheel."""
        for name, one in self.environments.items():
            wheels = {
                key: PythonWheel(wheel.version, wheel.filename, wheel.sha256) for key, wheel in one.wheels.items()
            }
            yield PythonEnvironment(name, one.python, one.digest, wheels)

    def version(self, package: str) -> str | None:
        """The upstream version of a locked package (no epoch, no revision), or None if it isn't locked."""
        locked = self.packages.get(package)
        return upstream(locked.version) if locked else None


def upstream(version: str) -> str:
    """The upstream part of a Debian version: `1:550.163.01-2` → `550.163.01` (Debian policy 5.6.12)."""
    return version.split(":", 1)[-1].rsplit("-", 1)[0]


def read_lock(directory: Path) -> Lock:
    """images/NAME/image.lock. Raises GoldsmithError if there is none or it isn't a lock."""
    path = directory / "image.lock"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise GoldsmithError(
            "this image has no lock yet", where=str(path), hint=f"make it: goldsmith lock {directory}"
        ) from None
    except OSError as error:
        raise GoldsmithError(f"can't be read: {error}", where=str(path)) from None
    lock = parse_lock(content, str(path))
    if lock.image != path.resolve().parent.name:
        raise GoldsmithError(
            f"it is image {lock.image}'s lock", where=str(path), hint="a lock isn't copied; make it: goldsmith lock"
        )
    return lock


def parse_lock(content: bytes, where: str) -> Lock:
    """A lock's content. where: what to name in errors. Raises GoldsmithError if it isn't one, or isn't whole."""
    hint = "a lock isn't edited by hand; take it from git, or make it anew: goldsmith lock IMAGE --refresh"
    try:
        lock = Lock.model_validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise GoldsmithError(
            f"not a lock of this version of goldsmith: {first['msg']}",
            where=f"{where}, {'.'.join(map(str, first['loc']))[:200] or 'the file'}",
            hint=hint,
        ) from None
    if wrong := _contradiction(lock):
        raise GoldsmithError(wrong, where=where, hint=hint)
    return lock


def _contradiction(lock: Lock) -> str:
    """What a lock says that can't be, empty if nothing."""
    for key, package in lock.packages.items():
        if key != package.name:
            return f"package {key} is named {package.name} inside"
        if package.repository not in lock.repositories:
            return f"package {key} comes from {package.repository}, which isn't among the repositories"
        if package.architecture not in ("all", lock.architecture):
            return f"package {key} is for {package.architecture}, the image for {lock.architecture}"
    for name, environment in lock.environments.items():
        for key, wheel in environment.wheels.items():
            if key != wheel.name:
                return f"wheel {key} of environment {name} is named {wheel.name} inside"
    return "" if lock.packages else "it has no packages"
