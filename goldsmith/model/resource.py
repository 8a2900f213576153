"""What a role can promise about a node, as data: the words of `desired`.

A resource says what should be, never how to get there. The same resource is deployed, baked into images,
probed and audited; nobody writes a second list (docs/architecture.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from goldsmith.errors import GoldsmithError

# Where Python environments are on a node.
PYTHON_ROOT = "/opt/goldsmith/python"

UnitState = Literal["enabled", "disabled", "masked"]
ModuleState = Literal["loaded", "blacklisted"]


@dataclass(frozen=True)
class Package:
    """An exact package. `files` holds what the lock knows of the files in it that a probe looks at.

    source: the source package that it is built from. verify: their content is hashed by every probe, however large;
    otherwise large ones only by a deep one.
    """

    name: str
    version: str
    held: bool = False
    verify: bool = False
    source: str = ""
    files: Mapping[str, PackageFile] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class PackageFile:
    """One file inside a package, as the deb in the pool has it: dpkg's database can't vouch for it.

    link: where a symbolic link leads (then it has no content): a libnccl.so.2 that leads to another library, or is
    one itself, is what the loader takes.
    """

    size: int
    sha256: str
    link: str | None = None


@dataclass(frozen=True)
class File:
    """A file with exactly this content, mode and owner.

    before_packages: written before the package transaction (apt's own configuration, module blacklists that a
    DKMS build or a postinst must already see).
    secret: its content is never shown, not even in a difference.
    """

    path: str
    content: str
    mode: int = 0o644
    owner: str = "root"
    group: str = "root"
    before_packages: bool = False
    secret: bool = False

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or "/../" in self.path or "\n" in self.path:
            raise GoldsmithError(f"a managed file needs an absolute, plain path, got {self.path!r}")

    @property
    def sha256(self) -> str:
        return sha256(self.content.encode()).hexdigest()


@dataclass(frozen=True)
class Unit:
    """A systemd unit and whether it starts at boot. A masked one is also stopped where systemd runs.

    running: None leaves it to the unit (a gated service may rightly be inactive on a node without the device).
    before_packages: set before the transaction, so that a maintainer script can't start it
    (kubernetes-sigs/image-builder#2058: disabling apt-daily at the end is too late).
    """

    name: str
    state: UnitState
    running: bool | None = None
    before_packages: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9:_.@\\-]+\.[a-z]+", self.name):
            raise GoldsmithError(f"a unit is named with its type, e.g. chrony.service, got {self.name!r}")


@dataclass(frozen=True)
class KernelModule:
    """A kernel module that loads at boot or never, with its options."""

    name: str
    state: ModuleState = "loaded"
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _require(r"[A-Za-z0-9_-]+", self.name, "a kernel module's name is letters, digits, _ and -", "nvme_core")
        for key, value in self.options.items():
            what = f"kernel module {self.name}"
            _require(r"[^\s=]+", key, f"{what}: an option's name has no blanks and no `=`", "prof_sel")
            # modprobe.d(5): a backslash at the end joins the next line
            _require(r"[^\r\n\\]*", value, f"{what}, option {key}: its value is one line without backslashes", "1")


@dataclass(frozen=True)
class Sysctl:
    """A kernel setting by its dotted name, e.g. net.ipv4.conf.all.arp_ignore."""

    key: str
    value: str

    def __post_init__(self) -> None:
        # what begins with - # or ; is something else in sysctl.d(5); // would be .. below /proc/sys
        name = r"(?!.*//)[^\s=#;/.-][^\s=]*"
        _require(name, self.key, "a sysctl's name has no blanks and no `=`", "net.core.somaxconn")
        _require(r"[^\r\n]*", self.value, f"sysctl {self.key}: its value is one line", "4096")


@dataclass(frozen=True)
class KernelParameter:
    """One word of the kernel command line, e.g. `iommu=pt`."""

    text: str

    def __post_init__(self) -> None:
        # it stands between double quotes in a file that the shell reads as root
        what = "a kernel parameter is one word without quotes, $, ` and backslashes"
        _require(r"[^\s'\"`$\\]+", self.text, what, "iommu=pt")


def _require(pattern: str, text: str, what: str, example: str) -> None:
    if not re.fullmatch(pattern, str(text)):
        raise GoldsmithError(f"{what}, got {text!r}", hint=f"e.g. {example}")


@dataclass(frozen=True)
class PythonEnvironment:
    """A Python environment of exactly these wheels, at PYTHON_ROOT/NAME. python: 3.13, of the system's own Python.
    digest: of all that is in it. wheels: normalised project name → its wheel."""

    name: str
    python: str
    digest: str
    wheels: Mapping[str, PythonWheel] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _require(r"[a-z][a-z0-9_-]*", self.name, "a Python environment's name is lower case letters, digits, - and _",
                 "train")  # fmt: skip

    @property
    def folder(self) -> str:
        """The name of the folder that PYTHON_ROOT/NAME leads to; a second one of the same content has .1 after it."""
        return f"{self.name}-{self.digest[:12]}"


@dataclass(frozen=True)
class PythonWheel:
    """One wheel of an environment: the very file."""

    version: str
    filename: str
    sha256: str


Resource = Package | File | Unit | KernelModule | Sysctl | KernelParameter | PythonEnvironment
