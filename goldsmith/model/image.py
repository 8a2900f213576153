"""An image: images/NAME/image.yml, edited by people. What it resolves to is the lock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from goldsmith.credentials import hide, short
from goldsmith.errors import GoldsmithError
from goldsmith.layers import read_layers
from goldsmith.model.stack import (
    Dkms,
    Environment,
    Family,
    Hardware,
    Kernel,
    PackageName,
    Repository,
    Stack,
    Strict,
    Word,
)
from goldsmith.yamlfile import Places

RoleName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
# The name of the distribution's own repositories, in `repository:` and in locks.
BASE = "base"


class Base(Strict):
    """The distribution under the image. No mirror is named: the machine's own apt sources, or mmdebstrap's
    default, say where the packages are fetched; what counts is their hash in the lock."""

    distribution: Literal["debian", "ubuntu"]
    release: Annotated[str, Field(pattern=r"^[a-z]+$")]
    architecture: Literal["amd64", "arm64"] = "amd64"
    suites: list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9/-]*$")]] = Field(min_length=1)
    components: list[Annotated[str, Field(pattern=r"^[a-z-]+$")]] = ["main"]
    # Enough to boot and be reached; a node that starts from this is what `deploy` converges.
    packages: list[PackageName]


class Hygiene(Strict):
    """What the hygiene check lets the finished tree have, beyond what it knows.

    privileged: programs with setuid, setgid or capabilities, by their paths.
    """

    privileged: list[Annotated[str, Field(pattern=r"^(/[^/\s]+)+$")]] = []


class Image(Strict):
    """What a person decides about an image, its layers (`extends`) laid over each other."""

    schema_: Literal[1] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    description: str = ""
    hardware: Hardware = Hardware()
    base: Base
    repositories: dict[Word, Repository] = {}
    kernel: Kernel | None = None
    dkms: Dkms = Dkms()
    stack: Stack = Stack()
    families: dict[RoleName, Family] = {}
    python: dict[Word, Environment] = {}
    roles: list[RoleName]
    variables: dict[str, Any] = {}
    hygiene: Hygiene = Hygiene()

    @field_validator("roles")
    @classmethod
    def _once(cls, roles: list[str]) -> list[str]:
        if len(set(roles)) != len(roles):
            raise ValueError("a role stands here twice")
        return roles

    @field_validator("repositories")
    @classmethod
    def _not_base(cls, repositories: dict[str, Repository]) -> dict[str, Repository]:
        if BASE in repositories:
            raise ValueError(f"{BASE} is the distribution's own: give it another name")
        return repositories

    @model_validator(mode="after")
    def _names(self) -> Image:
        if taken := sorted({"kernel", *Stack.model_fields} & set(self.families)):
            raise ValueError(f"families has {', '.join(taken)}, which belongs under stack (the kernel at the top)")
        for path, family in self.sets.items():
            if family.repository not in (None, BASE, *self.repositories):
                raise ValueError(
                    f"{'.'.join(path)}.repository is {family.repository}: "
                    f"it must be one of {', '.join([BASE, *self.repositories])}"
                )
        return self

    @property
    def sets(self) -> dict[tuple[str, ...], Family]:
        """Field of image.yml → the packages there that move together: kernel, stack, then the image's own families."""
        return {
            **({("kernel",): self.kernel} if self.kernel else {}),
            **{("stack", name): one for name, one in self.stack.families().items()},
            **{("families", name): one for name, one in self.families.items()},
        }

    @property
    def family_names(self) -> list[str]:
        """The names that the lock gives them: the last word of the field."""
        return [path[-1] for path in self.sets]


def read_image(directory: Path) -> Image:
    """The image of a folder such as images/lab, whose name is the folder's."""
    return read_placed(directory)[0]


def read_placed(directory: Path) -> tuple[Image, Places]:
    """The image, and where each of its fields stands: in its own file, or in one that it extends."""
    path = directory / "image.yml"
    if not path.is_file():
        known = sorted(p.parent.name for p in directory.parent.glob("*/image.yml"))
        raise GoldsmithError(
            "there is no image here",
            where=str(path),
            hint=f"images beside it: {', '.join(known)}" if known else "give a folder with an image.yml",
        )
    image, places = read_layers(path, Image)
    if image.name != directory.resolve().name:
        raise GoldsmithError(
            f"name is {image.name}, but the folder is {directory.resolve().name}",
            where=places.of("name"),
            hint="rename one of them: an image is found by its folder",
        )
    for name, environment in image.python.items():
        for number, requirement in enumerate(environment.requirements):
            if hide(requirement) != requirement:
                raise GoldsmithError(
                    f"{short(requirement)} is an address with a login or a token, which would be shown",
                    where=places.of("python", name, "requirements", number),
                    hint="name the project and its version; an index's login belongs into netrc",
                )
    return image, places


def flat_text(directory: Path) -> str:
    """image.yml as it reads with its layers laid over each other, without what is at its default."""
    import yaml

    data = read_image(directory).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)
