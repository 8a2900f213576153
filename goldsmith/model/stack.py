"""What an image.yml says about its GPU stack: sets of packages that move together, each at one upstream version."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

PackageName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
Word = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]


_ADDRESS = re.compile(
    r"(https?://([A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?|file:(//(localhost)?)?(?=/))"
    r"(/[A-Za-z0-9._~:/\[\]!$&()*+,;=%-]*)?"
)


def _without_credentials(address: str) -> str:
    if "@" in address:
        raise ValueError(
            "no user or password here, a lock and its diff show them: apt_auth.conf(5) is the place for apt's, "
            "netrc for a package index's; an @ in a path is written %40"
        )
    if re.search("[?#]", address):
        raise ValueError("no query and no fragment here: a lock and its diff would show a token in it")
    if not _ADDRESS.fullmatch(address):
        raise ValueError("an address: http://HOST/…, https://HOST/… or file:///…, without blanks and quotes")
    return address


# Where something is fetched from. It goes into the lock as it is, so it can't hold a login. file:/srv/apt, as apt
# writes it, has no place for one.
Address = Annotated[str, AfterValidator(_without_credentials)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Family(Strict):
    """Packages that move together, at one upstream version. The lock adds every other binary package of the
    same sources to it: a hold that missed one of them broke clusters (lyulyul/shine-cluster#30, #50).

    repository: the one of `repositories` that all of it comes from; a same-named package of another one is never
    taken (aws/aws-parallelcluster#3034). `base` is the distribution.
    """

    version: str | None = None
    packages: list[PackageName] = Field(min_length=1)
    # pins of single packages whose upstream version is another than the family's
    versions: dict[PackageName, str] = {}
    repository: Word | None = None

    @field_validator("version")
    @classmethod
    def _no_globs(cls, version: str | None) -> str | None:
        if version is not None and not re.fullmatch(r"[0-9][A-Za-z0-9.+~:-]*", version):
            raise ValueError("an upstream version such as 550.163.01, no wildcard")
        return version

    @model_validator(mode="after")
    def _pins_are_ours(self) -> Family:
        if stray := sorted(set(self.versions) - set(self.packages)):
            raise ValueError(f"versions names {', '.join(stray)}, which packages doesn't list")
        return self

    def pin(self, package: str) -> str | None:
        """The upstream version that `package` must have, or None where any will do."""
        return self.versions.get(package, self.version)


class Kernel(Family):
    """The one kernel that the image boots. release: what `uname -r` says on it; DKMS builds modules for it, never for
    the builder's own."""

    release: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+[A-Za-z0-9.+~_-]*$")]


# A module's name as `dkms status` says it; it is a folder's name, and the name of a file in /etc/dkms.
ModuleName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=100)]
# Below the folder of the file that names it: no part begins with a dot.
PatchFile = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+-][A-Za-z0-9._+-]*(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)*$")]


class Patch(Strict):
    """A change to a DKMS module's source, which `patch -p1` makes before it is built. module: e.g. nvidia-current-open.
    file: below the folder of the image.yml that says it; its digest goes into the lock."""

    module: ModuleName
    file: PatchFile


class Dkms(Strict):
    """How DKMS modules are built for the image's kernel. patches: in this order."""

    patches: list[Patch] = []

    @field_validator("patches")
    @classmethod
    def _once(cls, patches: list[Patch]) -> list[Patch]:
        if len({(one.module, one.file) for one in patches}) != len(patches):
            raise ValueError("a patch stands here twice")
        return patches


class Driver(Family):
    """flavor: which kernel module is in it; none for a userland alone, in containers and in the lab."""

    flavor: Literal["open", "proprietary"] | None = None


class Rdma(Family):
    """provider: the one that rdma-core and libibverbs come from. Both at once can't be installed, or break each
    other (Azure/azhpc-images#546)."""

    provider: Literal["distribution", "doca"] = "distribution"


class Stack(Strict):
    """The well-known sets: those that `goldsmith lint` has rules about. Any other one goes into `families`."""

    driver: Driver | None = None
    fabricmanager: Family | None = None  # NVSwitch hosts: the driver's version in full
    imex: Family | None = None  # NVL72 racks: likewise
    nvlsm: Family | None = None  # fourth generation NVSwitch: NVLink's subnet manager
    cuda: Family | None = None
    cudnn: Family | None = None
    nccl: Family | None = None
    rdma: Rdma | None = None
    container_toolkit: Family | None = None

    def families(self) -> dict[str, Family]:
        """name → set, of those that the image has."""
        sets = {name: getattr(self, name) for name in Stack.model_fields}
        return {name: one for name, one in sets.items() if one is not None}


class Hardware(Strict):
    """What the image is for. gpus: models as NVIDIA names them (H100, GB200). platform: how they are joined, which
    decides what the stack must have beside the driver: hgx has NVSwitches, nvl72 spans nodes, pcie has neither."""

    gpus: list[Annotated[str, Field(pattern=r"^[A-Z]+[0-9]+[A-Z0-9]*$")]] = []
    platform: Literal["hgx", "nvl72", "pcie"] | None = None


class Key(Strict):
    """The key that a repository is signed with. fingerprint: in full, as `gpg --fingerprint` has it, blanks allowed.
    The key itself is at `url`, or in `file` beside image.yml; whichever it is, only the fingerprint is trusted."""

    fingerprint: str
    url: Address | None = None
    file: Annotated[str, Field(pattern=r"^[^@:\s]+$")] | None = None

    @field_validator("fingerprint")
    @classmethod
    def _whole(cls, text: str) -> str:
        plain = re.sub(r"[\s:]", "", text).upper()
        if not re.fullmatch(r"[0-9A-F]{40}([0-9A-F]{24})?", plain):
            raise ValueError("a whole fingerprint, 40 or 64 hexadecimal digits: short ids can be forged")
        return plain

    @model_validator(mode="after")
    def _one_place(self) -> Key:
        if (self.url is None) == (self.file is None):
            raise ValueError("give either url or file")
        return self


class Repository(Strict):
    """An apt repository beside the distribution's own, as sources.list(5) has it. A flat one has the suite `/`
    (or a path that ends in it) and no components."""

    uri: Address
    suites: list[Annotated[str, Field(pattern=r"^(/|[A-Za-z0-9.][A-Za-z0-9./_-]*)$")]] = Field(min_length=1)
    components: list[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9./-]*$")]] = []
    key: Key

    @model_validator(mode="after")
    def _flat_or_not(self) -> Repository:
        for suite in self.suites:
            if suite.endswith("/") == bool(self.components):
                raise ValueError(f"suite {suite}: a flat one ends in / and has no components, any other has some")
        return self


class Environment(Strict):
    """A Python environment on every node, made from locked wheels alone.

    python: `3.12`, which must be the image's own python3. requirements: as pip reads them, one a line. index: a
    package index that is asked first (PyTorch's builds for one CUDA version); what it hasn't comes from the default
    index, which isn't named. platform: the wheels' newest tag, from the distribution's glibc unless it is told.
    """

    python: Annotated[str, Field(pattern=r"^3\.[0-9]+$")]
    requirements: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9][^\n]*$")]] = Field(min_length=1)
    index: Address | None = None
    platform: Annotated[str, Field(pattern=r"^manylinux_2_[0-9]+$")] | None = None
