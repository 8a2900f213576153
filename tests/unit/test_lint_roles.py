"""What roles say of an image: NCCL's settings, the driver's module options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from goldsmith.model.finding import Severity
from goldsmith.role import find_roles
from roles.nccl.rules import trapped
from tests.unit.lint_cases import LOCKED, image_of, lock_of, said

ROLES = find_roles(Path(__file__).parents[2])
WARN, FAIL, UNKNOWN = Severity.WARN, Severity.FAIL, Severity.UNKNOWN


def nccl(config: Any, reasons: Any = None, **change: Any) -> dict[str, Severity]:
    image = image_of({"variables": {"nccl_config": config, "nccl_config_reasons": reasons or {}}, **change})
    return said(ROLES["nccl"].lint(image, None))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {}),
        ({"NCCL_IB_TIMEOUT": 22, "NCCL_SOCKET_IFNAME": "=eth0", "NCCL_IB_TC": "106"}, {}),
        ({" NCCL_IB_TIMEOUT": "22"}, {"NC1": FAIL}),
        ({"export NCCL_IB_TIMEOUT": "22"}, {"NC1": FAIL}),
        ({"NCCL_IB_TIMEOUT": "22 # slow switches"}, {"NC1": FAIL}),
        ({"NCCL_IB_TIMEOUT": '"22"'}, {"NC1": FAIL}),
        ({"NCCL_IB_TIMEOUT": None}, {"NC1": FAIL}),
        ({"ib_timeout": 22}, {"NC1": FAIL}),
        ({1: 2}, {"NC1": FAIL}),
        ("NCCL_DEBUG=INFO", {"NC1": FAIL}),
        (["NCCL_DEBUG"], {"NC1": FAIL}),
        ({"NCCL_ALGO": "Ring"}, {"NC2": FAIL}),
        ({"NCCL_PROTO": "LL128"}, {"NC2": FAIL}),
        ({"NCCL_DEBUG": "INFO"}, {"NC3": WARN}),
        ({"NCCL_DEBUG_SUBSYS": "ALL", "NCCL_DEBUG": "WARN"}, {"NC3": WARN}),
        ({"NCCL_DEBUG": "WARN"}, {}),
        ({"NCCL_P2P_DISABLE": True}, {"NC3": WARN}),
        ({"NCCL_MIN_NCHANNELS": 32}, {"NC3": WARN}),
        ({"NCCL_IB_HCA": "mlx5_0,mlx5_1"}, {"NC4": WARN}),
        ({"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}, {}),
        ({"NCCL_IB_HCA": "mlx5"}, {}),
        ({"NCCL_NET_GDR_LEVEL": "SYS"}, {"NC5": WARN}),
        ({"NCCL_IB_GID_INDEX": 3}, {"Q3": WARN}),
    ],
)
def test_nccl(config: Any, expected: dict[str, Severity]) -> None:
    assert nccl(config) == expected


def test_a_reason_settles_it() -> None:
    for key in ("NCCL_ALGO", "NCCL_PROTO", "NCCL_DEBUG", "NCCL_NET_GDR_LEVEL"):
        assert nccl({key: "INFO"}, {key: "measured on this rack"}) == {}
        assert nccl({key: "INFO"}, {key: "  "}) != {}
        assert nccl({key: "INFO"}, {"NCCL_OTHER": "measured"}) != {}
    # a reason doesn't make a prefix a name
    assert nccl({"NCCL_IB_HCA": "mlx5_1"}, {"NCCL_IB_HCA": "storage is on mlx5_0"}) == {"NC4": WARN}
    assert nccl({"NCCL_ALGO": "Ring"}, ["NCCL_ALGO"]) == {"NC1": FAIL}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.20.5", {}),
        ("2.21.5", {"Q3": WARN}),
        ("2.9.9", {}),
        ("2.28.9-1+cuda13.0", {"Q3": WARN}),
        (None, {"Q3": UNKNOWN}),
    ],
)
def test_a_fixed_gid_index(version: str | None, expected: dict[str, Severity]) -> None:
    stack = {"nccl": {"version": version, "packages": ["libnccl2"]}}
    assert nccl({"NCCL_IB_GID_INDEX": 3}, stack=stack) == expected


def test_the_locks_nccl_counts() -> None:
    image = image_of({"variables": {"nccl_config": {"NCCL_IB_GID_INDEX": 3}}, "stack": {"nccl": {"version": "2.2"}}})
    assert said(ROLES["nccl"].lint(image, None)) == {}
    assert said(ROLES["nccl"].lint(image, lock_of(LOCKED))) == {"Q3": WARN}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("mlx5_1", ["mlx5_1"]),
        ("mlx5_1:1", ["mlx5_1"]),
        ("^mlx5_1", ["mlx5_1"]),
        ("=mlx5_1", []),
        ("^=mlx5_1", []),
        ("mlx5_", []),
        ("mlx5", []),
        ("mlx4", []),
        ("bnxt_re1,mlx5_ib0", ["bnxt_re1", "mlx5_ib0"]),
        ("", []),
        (",", []),
    ],
)
def test_trapped(value: str, expected: list[str]) -> None:
    assert list(trapped(value)) == expected


@pytest.mark.parametrize(
    ("options", "flavor", "expected"),
    [
        ({"NVreg_EnableGpuFirmware": 0}, "open", {"OK4": WARN}),
        ({"NVreg_EnableGpuFirmware": False}, "open", {"OK4": WARN}),
        ({"NVreg_EnableGpuFirmware": "0"}, "open", {"OK4": WARN}),
        ({"NVreg_EnableGpuFirmware": 0}, "proprietary", {}),
        ({"NVreg_EnableGpuFirmware": 1}, "open", {}),
        ({"NVreg_RestrictProfilingToAdminUsers": 0}, "open", {}),
        ({}, "open", {}),
        (None, "open", {}),
        ("NVreg_EnableGpuFirmware=0", "open", {"OK6": FAIL}),
        ([1], "open", {"OK6": FAIL}),
    ],
)
def test_module_options(options: Any, flavor: str, expected: dict[str, Severity]) -> None:
    change = {"variables": {"nvidia_driver_module_options": options}, "stack": {"driver": {"flavor": flavor}}}
    assert said(ROLES["nvidia_driver"].lint(image_of(change), None)) == expected
