"""Every image.yml of the project: readable, and within the rules that the model can't say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goldsmith.model.image import read_image

ROOT = Path(__file__).parents[2]
IMAGES = sorted(path.parent for path in (ROOT / "images").glob("*/image.yml"))


@pytest.mark.parametrize("directory", IMAGES, ids=lambda path: path.name)
def test_image(directory: Path) -> None:
    image = read_image(directory)
    for role in image.roles:
        assert (ROOT / "roles" / role / "__init__.py").is_file(), f"there is no role {role}"
    # no mirror is ever named
    assert not re.search(r"://", (directory / "image.yml").read_text())


def test_the_lab_is_what_the_design_measured() -> None:
    image = read_image(ROOT / "images/lab")
    assert (image.base.distribution, image.base.release) == ("debian", "trixie")
    assert {path[-1]: family.version for path, family in image.sets.items()} == {
        "driver": "550.163.01", "cuda": "12.4.127", "nccl": "2.22.3", "pytorch": "2.6.0",
    }  # fmt: skip
    assert image.roles == ["base", "kernel", "nvidia_driver", "cuda", "nccl", "pytorch"]
