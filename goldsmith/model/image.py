"""An image: images/NAME/image.yml, edited by people. What it resolves to is the lock."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from goldsmith.errors import GoldsmithError
from goldsmith.yamlfile import read_yaml

PackageName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]+$")]
RoleName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Base(_Strict):
    """The distribution under the image. No mirror is named: the machine's own apt sources, or mmdebstrap's
    default, say where the packages are fetched; what counts is their hash in the lock."""

    distribution: Literal["debian"]
    release: Annotated[str, Field(pattern=r"^[a-z]+$")]
    architecture: Literal["amd64", "arm64"] = "amd64"
    suites: list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9/-]*$")]]
    components: list[Annotated[str, Field(pattern=r"^[a-z-]+$")]] = ["main"]
    # Enough to boot and be reached; a node that starts from this is what `deploy` converges.
    packages: list[PackageName]


class Family(_Strict):
    """Packages that move together, at one upstream version. The lock adds every other binary package of the
    same sources to it: a hold that missed one of them broke clusters (lyulyul/shine-cluster#30, #50)."""

    version: str | None = None
    packages: list[PackageName] = Field(min_length=1)
    # pins of single packages whose upstream version is another than the family's
    versions: dict[PackageName, str] = {}

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


class Image(_Strict):
    """What a person decides about an image."""

    schema_: Literal[1] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    description: str = ""
    base: Base
    families: dict[RoleName, Family] = {}
    roles: list[RoleName]
    variables: dict[str, Any] = {}

    @field_validator("roles")
    @classmethod
    def _once(cls, roles: list[str]) -> list[str]:
        if len(set(roles)) != len(roles):
            raise ValueError("a role stands here twice")
        return roles


def read_image(directory: Path) -> Image:
    """The image of a folder such as images/lab, whose name is the folder's."""
    path = directory / "image.yml"
    if not path.is_file():
        known = sorted(p.parent.name for p in directory.parent.glob("*/image.yml"))
        raise GoldsmithError(
            "there is no image here",
            where=str(path),
            hint=f"images beside it: {', '.join(known)}" if known else "give a folder with an image.yml",
        )
    image = read_yaml(path, Image)
    if image.name != directory.resolve().name:
        raise GoldsmithError(
            f"name is {image.name}, but the folder is {directory.resolve().name}",
            where=f"{path}, name",
            hint="rename one of them: an image is found by its folder",
        )
    return image
