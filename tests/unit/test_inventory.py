"""Sites: node sets, variables checked against the roles' argument specs, errors with file and variable."""

from pathlib import Path

import pytest
import yaml

from goldsmith import GoldsmithError
from goldsmith.inventory.site import Site, complete, fold, names_of
from goldsmith.model.image import Image

PROJECT = Path(__file__).parents[2]


def project(tmp_path: Path, all_vars: str = "goldsmith_image: small\n", image_vars: str = "{}") -> Path:
    """A project of its own, with the roles of this one; returns its site."""
    (tmp_path / "roles").symlink_to(PROJECT / "roles")
    (tmp_path / "images/small").mkdir(parents=True)
    (tmp_path / "images/small/image.yml").write_text(
        "schema: 1\nname: small\n"
        "base: {distribution: debian, release: trixie, suites: [trixie], packages: [python3]}\n"
        f"roles: [nccl]\nvariables: {image_vars}\n"
    )
    site = tmp_path / "inventories/site"
    (site / "group_vars").mkdir(parents=True)
    (site / "hosts.yml").write_text("all:\n  children:\n    gpu:\n      hosts:\n        node[01:04]:\n")
    (site / "group_vars/all.yml").write_text(all_vars)
    return site


def test_select(tmp_path: Path) -> None:
    site = Site(project(tmp_path))
    assert site.select(None) == ["node01", "node02", "node03", "node04"]
    assert site.select("node[02-03]") == ["node02", "node03"]
    assert site.select("gpu") == site.names
    assert site.path == "inventories/site"
    with pytest.raises(GoldsmithError, match=r"node\[07-08\]"):
        site.select("node[03,07-08]")
    with pytest.raises(GoldsmithError, match="did you mean gpu"):
        site.select("gpus")
    with pytest.raises(GoldsmithError, match="not a node set"):
        site.select("node[01-")


def test_fold() -> None:
    assert fold(["node02", "node04"]) == "node[02,04]"
    assert names_of("node[1-2],x") == ["node1", "node2", "x"]


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ("goldsmith_image: small\nnccl_confg: {}\n", r"all.yml:2, nccl_confg: role nccl has no variable nccl_confg"),
        ("goldsmith_image: small\nnccl_config: [1]\n", r"all.yml:2, nccl_config: "),
        ("other: 1\n", "node node01 has no image"),
        ("goldsmith_image: nope\n", "there is no image here"),
        ("goldsmith_image: small\nansible_port: ssh\n", r"all.yml:2, ansible_port: not a port"),
    ],
)
def test_errors_name_file_and_variable(tmp_path: Path, variables: str, says: str) -> None:
    site = Site(project(tmp_path, variables))
    with pytest.raises(GoldsmithError, match=says):
        site.node("node01")


def test_a_misspelt_variable_has_a_near_one(tmp_path: Path) -> None:
    with pytest.raises(GoldsmithError, match="did you mean nccl_config"):
        Site(project(tmp_path, "goldsmith_image: small\nnccl_confg: {}\n")).node("node01")


def test_defaults_then_image_then_inventory(tmp_path: Path) -> None:
    node = Site(project(tmp_path, image_vars="{nccl_config: {NCCL_DEBUG: WARN}}")).node("node01")
    assert node["nccl_config"] == {"NCCL_DEBUG": "WARN"}
    given = "goldsmith_image: small\nnccl_config: {NCCL_DEBUG: VERSION}\n"
    (tmp_path / "inventories/site/group_vars/all.yml").write_text(given)
    node = Site(tmp_path / "inventories/site").node("node01")
    assert node["nccl_config"] == {"NCCL_DEBUG": "VERSION"}
    with pytest.raises(GoldsmithError, match="no variable nope"):
        node["nope"]


def test_an_images_unknown_variable_is_an_error() -> None:
    data = yaml.safe_load(
        "{schema: 1, name: x, base: {distribution: debian, release: a, suites: [a], packages: [python3]}, roles: [],"
        " variables: {nccl_config: {}}}"
    )
    with pytest.raises(GoldsmithError, match=r"images/x/image.yml, variables.nccl_config"):
        complete([], Image.model_validate(data), {}, {}, "image x")
