"""What is known of drivers, CUDA, PyTorch, GPUs and kernels: facts.yaml, read strictly. Facts, no rules."""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from goldsmith.model.stack import Strict
from goldsmith.yamlfile import read_yaml

FILE = Path(__file__).parent / "facts.yaml"
Said = Annotated[str, Field(min_length=3)]
Version = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)*$")]


class Fact(Strict):
    """source: who says so. as_of: when that was read. verified: false for hearsay, which may warn, never fail."""

    source: Said
    as_of: date
    verified: bool


class Toolkit(Fact):
    driver: Version


class Major(Fact):
    min_driver: Version


class Runtime(Fact):
    toolkit: Version


class Torch(Fact):
    cuda: Version
    cudnn: Version
    nccl: Version


class Gpu(Fact):
    architecture: str
    nvswitch: bool = False
    data_center: bool = True


class Architecture(Fact):
    modules: Literal["open", "proprietary"] | None = None
    nvlsm: bool = False


class MinDriver(Fact):
    driver: Version


class Service(Fact):
    before: str
    since: str
    from_branch: int

    def package(self, driver: str) -> str:
        """What the service's package is called beside this driver."""
        branch = driver.split(".")[0]
        return self.since if int(branch) >= self.from_branch else self.before.format(branch=branch)


class Reason(Fact):
    why: Said


class Pair(Reason):
    """A driver that doesn't build for a kernel (a pattern). Which: its branch, or its version in full. package: a
    pattern, where one package of it doesn't and another was not tried. module: the DKMS modules (a pattern) that a
    patch may mend."""

    branch: int | None = None
    driver: Version | None = None
    kernel: str
    package: str | None = None
    module: str = ".*nvidia.*"

    def about(self, driver: str) -> bool:
        """Whether it is about this driver."""
        return driver == self.driver or (self.branch is not None and driver.split(".")[0] == str(self.branch))

    @model_validator(mode="after")
    def _one_of_them(self) -> Pair:
        if (self.branch is None) == (self.driver is None):
            raise ValueError("a pair names either a branch or a driver's whole version")
        return self


class Built(Fact):
    """A driver that was built for a kernel (a pattern)."""

    kernel: str


class Pattern(Reason):
    pattern: str


class RetiredKey(Reason):
    name: str
    instead: str


class Facts(Strict):
    schema_: Literal[1] = Field(alias="schema")
    as_of: date
    cuda_toolkits: dict[Version, Toolkit]
    cuda_majors: dict[str, Major]
    cuda_runtimes: dict[Version, Runtime]
    torch: dict[Version, Torch]
    gpus: dict[str, Gpu]
    architectures: dict[str, Architecture]
    gpu_min_driver: dict[str, MinDriver]
    driver_services: dict[str, Service]
    container_toolkit_bad: dict[Version, Reason]
    container_toolkit_secure: dict[Version, Reason]
    kernel_pairs: dict[str, Pair]
    kernel_builds: dict[str, Built]
    moving_kernels: dict[str, Pattern]
    retired_keys: dict[str, RetiredKey]
    owned_together: dict[str, Pattern]

    @model_validator(mode="before")
    @classmethod
    def _each_has_its_source(cls, data: Any) -> Any:
        """A table's source, date and standing are those of each entry that doesn't name its own."""
        if not isinstance(data, dict):
            return data
        return {name: _entries(table) for name, table in data.items()}

    @model_validator(mode="after")
    def _names_known(self) -> Facts:
        if unknown := sorted({one.architecture for one in self.gpus.values()} - set(self.architectures)):
            raise ValueError(f"gpus has the architecture {', '.join(unknown)}, which architectures doesn't list")
        if unknown := sorted(set(self.gpu_min_driver) - set(self.gpus)):
            raise ValueError(f"gpu_min_driver has {', '.join(unknown)}, which gpus doesn't list")
        return self


def _entries(table: Any) -> Any:
    if not isinstance(table, dict) or "entries" not in table:
        return table
    common = {key: value for key, value in table.items() if key != "entries"}
    return {key: {**common, **(entry or {})} for key, entry in table["entries"].items()}


@cache
def packaged_facts() -> Facts:
    """Those that goldsmith comes with."""
    return read_yaml(FILE, Facts)
