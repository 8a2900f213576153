from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from goldsmith.errors import GoldsmithError
from goldsmith.yamlfile import Places, read_lines, read_yaml


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    version: str
    packages: list[str] = []


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    families: dict[str, Inner] = {}


GOOD = """\
name: lab
families:
  nccl:
    # a comment
    version: 2.22.3
    packages: [libnccl2]
  cuda:
    version: "12.4"
    packages:
      - libcudart12
      - libcublas12
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.yml"
    path.write_text(text)
    return path


def test_reads_a_good_file(tmp_path: Path) -> None:
    outer = read_yaml(written(tmp_path, GOOD), Outer)
    assert outer.families["nccl"].version == "2.22.3"


def test_places_name_line_and_field(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    places = Places(path, read_lines(path)[1])
    assert places.of("families", "nccl", "version") == f"{path}:5, families.nccl.version"
    assert places.of("families", "cuda", "packages", 1) == f"{path}:11, families.cuda.packages.1"
    # a field that isn't there: its nearest parent's line
    assert places.of("families", "nccl", "versions", "x") == f"{path}:3, families.nccl.versions.x"
    assert places.of() == f"{path}:1, the file"


@pytest.mark.parametrize(
    ("text", "line", "what", "hint"),
    [
        (GOOD.replace("version: 2.22.3", "versoin: 2.22.3"), 5, "no such field", "did you mean version"),
        (GOOD.replace("families:", "famlies:"), 2, "no such field", "did you mean families"),
        (GOOD.replace("    version: 2.22.3\n", ""), 3, "is missing", ""),
        (GOOD.replace("2.22.3", "12.10"), 5, "string", "put it in quotes"),
        (GOOD + "name: twice\n", 12, "for the second time", ""),
        ("name: [\n", 2, "not valid YAML", ""),
        ("", 1, "is missing", ""),
        (GOOD.replace("2.22.3", "[1]"), 5, "string", ""),
    ],
)
def test_errors_name_the_line_and_the_remedy(tmp_path: Path, text: str, line: int, what: str, hint: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(GoldsmithError) as caught:
        read_yaml(path, Outer)
    assert caught.value.where.startswith(f"{path}:{line}")
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(GoldsmithError, match="can't be read"):
        read_yaml(tmp_path / "none.yml", Outer)
    with pytest.raises(GoldsmithError, match="can't be read"):
        read_lines(tmp_path / "none.yml")


def test_the_real_models_are_explained(tmp_path: Path) -> None:
    from goldsmith.model.image import Image

    text = "schema: 1\nname: x\nroles: []\nbase:\n  distribution: debian\n  release: trixie\n  suites: [trixie]\n"
    families = "  packages: [bash]\nfamilies:\n  nccl:\n    package: [libnccl2]\n    version: 1.0\n"
    with pytest.raises(GoldsmithError) as caught:
        read_yaml(written(tmp_path, text + families), Image)
    assert "families.nccl.package" in caught.value.where and "did you mean packages" in caught.value.hint
