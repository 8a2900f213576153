"""Packages beside the lock that move with a family, and pins that apt doesn't follow."""

from __future__ import annotations

import pytest

from goldsmith import Package, Severity
from goldsmith.compare import compare
from goldsmith.model.desired import gather

from .make import package, probe

DRIVER = gather({"nvidia_driver": [Package("libcuda1", "550-1", held=True, source="nvidia-graphics-drivers")]})
LOCKED = package("550-1", held=True)


@pytest.mark.parametrize(
    ("version", "severity", "actual"),
    [("550-1", Severity.WARN, "550-1"), ("460-1", Severity.FAIL, "460-1: half a family")],
)
def test_a_package_of_a_familys_source_is_told_and_to_be_held(version: str, severity: Severity, actual: str) -> None:
    """lyulyul/shine-cluster#30."""
    stray = {**package(version), "source": "nvidia-graphics-drivers"}
    packages = {"libcuda1": LOCKED, "libnvidia-common-460": stray, "bash": package("5")}
    told, hold = compare(DRIVER, probe(packages=packages))
    assert (told.kind, told.key, told.severity, told.actual) == ("strays", "libnvidia-common-460", severity, actual)
    assert (hold.kind, hold.key, hold.role) == ("holds", "libnvidia-common-460", "nvidia_driver")
    packages["libnvidia-common-460"] = {**stray, "held": True}
    assert [one.kind for one in compare(DRIVER, probe(packages=packages))] == ["strays"]


@pytest.mark.parametrize(
    ("candidate", "actual"),
    [("550-1", None), (None, None), ("560-1", "apt would take 560-1"),
     ("higher", "apt would take any higher version that a source has")],
)  # fmt: skip
def test_a_pin_that_is_off_is_told(candidate: str | None, actual: str | None) -> None:
    candidates = {"libcuda1": {"candidate": candidate, "priority": 500}}
    found = compare(DRIVER, probe(packages={"libcuda1": LOCKED}, candidates=candidates))
    assert [one.actual for one in found] == ([actual] if actual else [])
    assert all(one.kind == "pins" and "priority 500" in one.evidence[0] for one in found)
