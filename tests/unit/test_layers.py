"""image.yml over what it extends: what wins, and that every error names the file and line of the very field."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.model.image import flat_text, read_image, read_placed

COMMON = """\
schema: 1
base:
  distribution: debian
  release: trixie
  suites: [trixie, trixie-security]
  packages: [openssh-server]
repositories:
  cuda:
    uri: https://repository.invalid/cuda/
    suites: [/]
    key:
      fingerprint: AAAA BBBB CCCC DDDD EEEE  FFFF 0000 1111 2222 3333
      file: keys/cuda.asc
stack:
  driver:
    version: 550.144.03
    flavor: proprietary
    packages: [libcuda1]
    repository: cuda
  nccl:
    version: 2.21.5
    packages: [libnccl2]
roles: [base]
variables:
  nccl_config: {NCCL_DEBUG: WARN, NCCL_IB_QPS_PER_CONNECTION: 4}
"""
OWN = """\
name: own
extends: ../common
stack:
  driver:
    version: 580.95.05
    flavor: open
  nccl: null
variables:
  nccl_config: {NCCL_DEBUG: null}
"""


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name, text in (("common", COMMON), ("own", OWN)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "image.yml").write_text(text)
    return tmp_path


def test_the_upper_layer_wins_field_by_field(images: Path) -> None:
    image, places = read_placed(images / "own")
    driver = image.stack.driver
    assert driver is not None and (driver.version, driver.flavor, driver.packages) == (
        "580.95.05", "open", ["libcuda1"],
    )  # fmt: skip
    assert image.stack.nccl is None and image.base.suites == ["trixie", "trixie-security"]
    assert image.variables == {"nccl_config": {"NCCL_IB_QPS_PER_CONNECTION": 4}}
    assert image.repositories["cuda"].key.fingerprint == "AAAABBBBCCCCDDDDEEEEFFFF0000111122223333"
    own, common = images / "own/image.yml", images / "common/image.yml"
    assert places.of("stack", "driver", "version") == f"{own}:5, stack.driver.version"
    assert places.of("stack", "driver", "packages", 0) == f"{common}:18, stack.driver.packages.0"
    # a path in a layer is relative to that layer
    assert places.file_of("repositories", "cuda", "key", "file") == common


def test_the_flat_result_is_an_image_itself(images: Path) -> None:
    flat = flat_text(images / "own")
    (images / "flat").mkdir()
    (images / "flat/image.yml").write_text(flat.replace("name: own", "name: flat"))
    assert read_image(images / "flat").stack == read_image(images / "own").stack
    assert "extends" not in flat and "580.95.05" in flat


@pytest.mark.parametrize(
    ("file", "old", "new", "where", "what"),
    [
        ("common", "version: 2.21.5", "verson: 2.21.5", "common/image.yml:21, stack.nccl.verson", "no such field"),
        ("own", "flavor: open", "flavour: open", "own/image.yml:6, stack.driver.flavour", "no such field"),
        ("own", "flavor: open", "flavor: closed", "own/image.yml:6, stack.driver.flavor", "'open'"),
        ("own", "version: 580.95.05", "version: 580.*", "own/image.yml:5, stack.driver.version", "no wildcard"),
        ("common", "repository: cuda", "repository: cude", "own/image.yml:1, the file", "driver.repository is cude"),
        ("common", "AAAA BBBB CCCC DDDD EEEE  FFFF 0000 1111", "7FA2AF80", "common/image.yml:12", "whole fingerprint"),
        ("common", "suites: [/]", "suites: [noble]", "common/image.yml:8, repositories.cuda", "has some"),
        ("common", "https://repository", "https://me:secret@repository", "common/image.yml:9", "no user or password"),
        ("own", "extends: ../common", "extends: ../comon", "own/image.yml:2, extends", "there is no"),
        ("own", "extends: ../common", "extends: 1", "own/image.yml:2, extends", "got 1"),
        ("own", "extends: ../common", "extends: ../own", "own/image.yml:2, extends", "leads back"),
        ("common", "schema: 1", "schema: 1\nextends: [../own]", "common/image.yml:2, extends.0", "leads back"),
        ("own", "name: own", "name: other", "own/image.yml:1, name", "the folder is own"),
    ],
)  # fmt: skip
def test_errors_name_the_layer(images: Path, file: str, old: str, new: str, where: str, what: str) -> None:
    path = images / file / "image.yml"
    text = path.read_text()
    assert old in text
    if file == "common" and new.startswith("verson"):
        # otherwise the upper layer takes the whole of it out
        (images / "own/image.yml").write_text(OWN.replace("  nccl: null\n", ""))
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(GoldsmithError) as caught:
        read_image(images / "own")
    assert where in caught.value.where, caught.value
    assert what in caught.value.what and "secret" not in str(caught.value)


def test_several_layers_the_later_over_the_earlier(images: Path) -> None:
    (images / "blackwell").mkdir()
    (images / "blackwell/image.yml").write_text("stack: {driver: {version: 590.48.01, flavor: open}}\n")
    (images / "own/image.yml").write_text("name: own\nextends: [../common, ../blackwell]\n")
    driver = read_image(images / "own").stack.driver
    assert driver is not None and (driver.version, driver.packages) == ("590.48.01", ["libcuda1"])
