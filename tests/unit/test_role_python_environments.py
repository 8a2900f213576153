"""The role python_environments, and what pytorch's check makes of a locked environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldsmith.audit.findings import judge
from goldsmith.errors import GoldsmithError
from goldsmith.fleet.answer import Answer
from goldsmith.model.lock import Lock, LockedEnvironment, LockedWheel
from goldsmith.plan import Plan

from .make import lock as make_lock
from .make import probe as make_probe
from .test_probe_core import FakeRun
from .test_role_all import FAMILIES, ROLES, facts_of, found, node, promised


def wheel(name: str, version: str) -> LockedWheel:
    return LockedWheel(name=name, version=version, filename=f"{name}-{version}-py3-none-any.whl", sha256="0" * 64,
                       size=1, why="required")  # fmt: skip


def lock_with(version: str = "2.6.0") -> Lock:
    environment = LockedEnvironment(
        python="3.13", platform="manylinux_2_40_x86_64", wheels={"torch": wheel("torch", version)}
    )
    other = environment.model_copy(update={"wheels": {"numpy": wheel("numpy", "2.2.4")}})
    packages = {"libnccl2": FAMILIES["libnccl2"]}
    return make_lock(packages).model_copy(update={"environments": {"train": environment, "eval": other}})


def test_all_or_the_named_ones() -> None:
    lock = lock_with()
    assert set(promised("python_environments", lock).environments) == {"train", "eval"}
    assert set(promised("python_environments", lock, python_environments_only=["eval"]).environments) == {"eval"}
    with pytest.raises(GoldsmithError, match="names tain, which the image's lock hasn't got") as caught:
        promised("python_environments", lock, python_environments_only=["tain"])
    assert "train, eval" in caught.value.hint


def test_a_finding_names_the_environment_and_the_project() -> None:
    lock = lock_with()
    desired = promised("python_environments", lock, python_environments_only=["train"])
    plan = Plan(node(), lock, (ROLES["python_environments"],), desired, "inventories/lab")
    facts = {
        "python": "3.13", "system_site": False, "runs": True, "projects": {"torch": "2.5.1"}, "wrong": [],
        "since": {"torch": "2026-11-30T10:00:00Z"}, "wrong_count": 0, "changed": {"since": ""},
        "digest": desired.environments["train"].digest,
    }  # fmt: skip
    probe = make_probe(environments={"train": {"link": "x", "folders": {"x": facts}, "taken": {"x": ""}}})
    one = next(one for one in judge(plan, Answer("node01", probe)) if one.check == "python_environments.environment")
    assert (one.fact, one.expected, one.actual) == ("train torch", "2.6.0", "2.5.1")
    assert one.source == "images/lab/image.lock" and one.since == "2026-11-30T10:00:00Z"
    assert one.remedy == "goldsmith deploy inventories/lab --limit {nodes}"


PLACE = "/opt/goldsmith/python/train-0123456789ab/lib/python3.13/site-packages"


@pytest.mark.parametrize(
    ("locked", "there", "fits"),
    [
        ("2.6.0", "2.6.0+cu124", True),  # the default index doesn't say the CUDA version
        ("2.6.0+cu124", "2.6.0+cu124", True),
        ("2.6.0+cu126", "2.6.0+cu124", False),
        ("2.6.0", "2.5.1+cu124", False),
    ],
)
def test_the_torch_of_a_locked_environment(locked: str, there: str, fits: bool, tmp_path: Path) -> None:
    for place in (PLACE, PLACE.replace("0123", "9999")):
        path = tmp_path / f"{place[1:]}/torch/version.py"
        path.parent.mkdir(parents=True)
        path.write_text(f"__version__ = '{there}'\ncuda: Optional[str] = '12.4'\n")
    (tmp_path / "opt/goldsmith/python/train").symlink_to("train-0123456789ab")
    facts = facts_of("pytorch", FakeRun(tmp_path))
    assert [one["path"] for one in facts["environments"]] == [PLACE]  # not the one that it led to before
    findings = found("pytorch", facts, lock_with(locked))
    assert ("pytorch.version-matches-lock" not in findings) == fits
    if not fits:
        assert findings["pytorch.version-matches-lock"].actual == f"PyTorch {there}"
