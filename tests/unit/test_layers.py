"""image.yml over what it extends: what wins, and that every error names the file and line of the very field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from goldsmith.errors import GoldsmithError
from goldsmith.model.image import flat_text, read_image, read_placed
from goldsmith.role import roles_of

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


def written(images: Path, old: str, new: str) -> Path:
    path = images / "common/image.yml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    (images / "own/image.yml").write_text("name: own\nextends: ../common\n")
    return images / "own"


INDEX = "python: {train: {python: '3.12', requirements: [numpy], index: 'ADDRESS'}}\nroles: [base]"
FIELDS = [
    ("https://repository.invalid/cuda/", "'ADDRESS'"), ("file: keys/cuda.asc", "url: 'ADDRESS'"),
    ("file: keys/cuda.asc", "file: 'ADDRESS'"), ("roles: [base]", INDEX),
    ("suites: [/]", "suites: ['ADDRESS']"), ("uri:", "'ADDRESS': 1\n    uri:"), ("roles: [base]", "roles: ['ADDRESS']"),
    ("flavor: proprietary", "flavor: 'ADDRESS'"), ("schema: 1", "schema: 1\nextends: 'ADDRESS'"),
    ("roles: [base]", "python: {train: {python: '3.12', requirements: ['torch @ ADDRESS']}}\nroles: [base]"),
]  # fmt: skip


@pytest.mark.parametrize("field", FIELDS, ids=lambda one: one[1].splitlines()[0])
@pytest.mark.parametrize(
    "address",
    [
        "http://host/?token=SECRET", "https://bob:SECRET@host/x", "http:/bob:SECRET@host", "http://bob:p/SECRET@host",
        "bob:SECRET@host/x", "http://bob:p@SECRET@host", "https://SECRET@host", "http://bob:p SECRET@host/",
        "https://host/x#SECRET", "http://bob:p?SECRET@host",
    ],
)  # fmt: skip
def test_an_address_with_credentials_is_refused_and_not_shown(
    images: Path, field: tuple[str, str], address: str
) -> None:
    directory = written(images, field[0], field[1].replace("ADDRESS", address))
    with pytest.raises(GoldsmithError) as caught:
        flat_text(directory)
    assert "SECRET" not in str(caught.value), caught.value


@pytest.mark.parametrize(
    ("address", "right"),
    [
        ("https://host/a/b_c/~d/%40x/", True), ("http://127.0.0.1:8080/simple/", True), ("http://[::1]:80/x", True),
        ("file:///srv/apt", True), ("file:/srv/apt", True), ("file:srv", False),
        ("ftp://host/x", False), ("https://host/a b", False), ("file:bob:x/", False), ("http:/host/x", False),
        ("https://host:port/", False), ("https:///x", False), ("https://host/\\u001bx", False),
        ("https://host/'", False), ("https://host/x\\n", False), ("host/x", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("field", [FIELDS[0], FIELDS[1], FIELDS[3]], ids=["uri", "url", "index"])
def test_what_an_address_is(images: Path, field: tuple[str, str], address: str, right: bool) -> None:
    directory = written(images, field[0], field[1].replace("'ADDRESS'", f'"{address}"'))
    if right:
        assert address in flat_text(directory)
        return
    with pytest.raises(GoldsmithError, match="an address") as caught:
        read_image(directory)
    assert f"{images / 'common/image.yml'}:" in caught.value.where


@pytest.mark.parametrize(
    "value",
    [
        ".inf", "-.inf", ".nan", "2025-01-01", "2025-01-01 10:00:00", "!!set {a, b}", "!!binary aGVsbG8=",
        "!!binary /w==", "{1: x}", "{yes: x}", "{2025-01-01: x}", "{~: x}", "!!omap [a: 1]", "!!pairs [a: 1]",
        "[[{a: .nan}]]", "1.0e+999",
    ],
)  # fmt: skip
def test_what_a_lock_cant_keep_is_refused(images: Path, value: str) -> None:
    directory = written(images, "  nccl_config:", f"  odd: {value}\n  nccl_config:")
    with pytest.raises(GoldsmithError, match="quotes") as caught:
        read_image(directory)
    assert f"{images / 'common/image.yml'}:25, variables.odd" in caught.value.where


@pytest.mark.parametrize("value", [{"a": [1, 1.5, True, None, "yes", "2025-01-01", ".inf", "1e3", "=", "<<", "é"]}])
def test_show_is_faithful(images: Path, value: object) -> None:
    odd = yaml.safe_dump({"odd": value}, allow_unicode=True, default_flow_style=True, width=1000).strip().strip("{}")
    directory = written(images, "  nccl_config:", f"  {odd}}}\n  nccl_config:")
    assert yaml.safe_load(flat_text(directory))["variables"]["odd"] == value
    assert read_image(directory).variables["odd"] == value


def test_each_layer_is_read_once(images: Path) -> None:
    for number in range(25):
        (images / f"d{number}").mkdir()
        below = "[../common]" if number == 0 else f"[../d{number - 1}, ../d{number - 1}]"
        (images / f"d{number}/image.yml").write_text(f"description: of {number}\nextends: {below}\n")
    (images / "own/image.yml").write_text("name: own\nextends: ../d24\n")
    assert read_image(images / "own").description == "of 24"


def test_more_layers_than_anybody_needs(images: Path) -> None:
    for number in range(600):
        (images / f"d{number}").mkdir()
        (images / f"d{number}/image.yml").write_text(f"extends: ../d{number + 1}\n")
    (images / "own/image.yml").write_text("name: own\nextends: ../d0\n")
    with pytest.raises(GoldsmithError, match="layers over each other"):
        read_image(images / "own")


@pytest.mark.parametrize("name", ["x" * 5000, "x/" * 5000, r"a\0b", r"\e[2J", "9" * 15, "{a: " + "x" * 5000 + "}"])
def test_a_layers_name_doesnt_fill_the_screen(images: Path, name: str) -> None:
    text = name if name.startswith("{") else f'"{name}"'
    (images / "own/image.yml").write_text(f"name: own\nextends: {text}\n")
    with pytest.raises(GoldsmithError) as caught:
        read_image(images / "own")
    assert len(caught.value.what) < 300 and not re.search(r"[\x00-\x1f]", caught.value.what)
    assert caught.value.where == f"{images / 'own/image.yml'}:2, extends"


def test_a_wrong_role_has_its_line(images: Path) -> None:
    directory = written(images, "roles: [base]", "roles:\n  - base\n  - nvidia_drivr")
    image, places = read_placed(directory)
    with pytest.raises(GoldsmithError, match="did you mean nvidia_driver") as caught:
        roles_of(image.roles, Path(__file__).parents[2], lambda n: places.of("roles", n))
    assert caught.value.where == f"{images / 'common/image.yml'}:25, roles.1"
    with pytest.raises(GoldsmithError) as caught:
        roles_of(image.roles, Path(__file__).parents[2], "image.yml")
    assert caught.value.where == "image.yml, roles"
