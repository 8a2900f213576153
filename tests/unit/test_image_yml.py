"""Every image.yml of the project: readable, and within the rules that the model can't say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goldsmith.model.image import read_image

ROOT = Path(__file__).parents[2]
IMAGES = sorted(path.parent for path in (ROOT / "images").glob("*/image.yml"))
LAYERS = sorted((ROOT / "images").rglob("image.yml"))
# Where everybody gets the distribution's packages and Python's: what a machine is configured for, never named here.
DEFAULTS = r"(deb|archive|ports|security|snapshot)\.(debian|ubuntu)\.(org|com)|pypi\.org|pythonhosted\.org"


@pytest.mark.parametrize("directory", IMAGES, ids=lambda path: path.name)
def test_image(directory: Path) -> None:
    image = read_image(directory)
    for role in image.roles:
        assert (ROOT / "roles" / role / "__init__.py").is_file(), f"there is no role {role}"


@pytest.mark.parametrize("path", LAYERS, ids=lambda path: str(path.parent.relative_to(ROOT / "images")))
def test_no_default_mirror_is_named(path: Path) -> None:
    assert not re.search(DEFAULTS, path.read_text())


def test_the_lab_is_what_the_design_measured() -> None:
    image = read_image(ROOT / "images/lab")
    assert (image.base.distribution, image.base.release) == ("debian", "trixie")
    assert {path[-1]: family.version for path, family in image.sets.items()} == {
        "kernel": "6.12.117", "driver": "550.163.01", "cuda": "12.4.127", "nccl": "2.22.3", "pytorch": "2.6.0",
    }  # fmt: skip
    assert image.roles == ["base", "kernel", "nvidia_driver", "cuda", "nccl", "pytorch"]
