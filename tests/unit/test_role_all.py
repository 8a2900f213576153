"""What holds for every role: its variables are described, its promises gather, its probe and checks fit together."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from goldsmith import Finding, Lock, Node
from goldsmith.model.desired import Desired, gather
from goldsmith.role import Role, find_roles
from tests.unit.make import lock as make_lock
from tests.unit.test_probe_core import FakeRun

PROJECT = Path(__file__).parents[2]
ROLES = find_roles(PROJECT)
FAMILIES: dict[str, tuple[str, str, str | None]] = {
    "chrony": ("4.6.1-3", "chrony", None),
    "libcuda1": ("550.163.01-2", "nvidia-graphics-drivers", "driver"),
    "nvidia-persistenced": ("550.163.01-1", "nvidia-persistenced", "driver"),
    "libcudart12": ("12.4.127~12.4.1-2", "nvidia-cuda-toolkit", "cuda"),
    "libnccl2": ("2.22.3-1-1", "nvidia-nccl", "nccl"),
    "python3-torch": ("2.6.0+dfsg-7", "pytorch", "pytorch"),
    "linux-image-amd64": ("6.12.117-1", "linux-signed-amd64", "kernel"),
    "linux-image-6.12.117+deb13-amd64": ("6.12.117-1", "linux-signed-amd64", "kernel"),
}
LOCK = make_lock(FAMILIES)


def node(**variables: Any) -> Node:
    """A node with every role's defaults, and these variables over them."""
    defaults: dict[str, Any] = {}
    for role in ROLES.values():
        defaults |= role.defaults()
    return Node("node01", "lab", defaults | variables)


def promised(role: str, lock: Lock = LOCK, **variables: Any) -> Desired:
    return gather({role: ROLES[role].desired(node(**variables), lock)})


def facts_of(role: str, run: FakeRun) -> dict[str, Any]:
    """What the role's probe.py finds, as it arrives: through JSON."""
    names: dict[str, Any] = {"__name__": role}
    exec(compile(ROLES[role].probe_source() or "", f"{role}/probe.py", "exec", dont_inherit=True), names)
    run.variables = {key: value for key, value in node().variables.items() if key.startswith(role + "_")}
    return dict(json.loads(json.dumps(names["probe"](run))))


def found(role: str, facts: dict[str, Any], lock: Lock = LOCK, **variables: Any) -> dict[str, Finding]:
    """The check's findings by their ids."""
    findings = list(ROLES[role].check(node(**variables), lock, facts))
    for one in findings:
        assert one.check.startswith(f"{role}.") and one.expected and one.actual and one.evidence and one.remedy
        assert one.remedy.format(nodes="node[01-02]", site="inventories/lab")
    return {one.check: one for one in findings}


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_variables_are_described_and_named_after_the_role(role: Role) -> None:
    spec, defaults = role.argument_spec(), role.defaults()
    assert set(spec) == set(defaults)
    for name, option in spec.items():
        assert name.startswith(role.name + "_")
        assert option["description"] and option["default"] == defaults[name]
        kind = {"str": str, "int": int, "list": list, "dict": dict, "bool": bool}[option["type"]]
        assert isinstance(defaults[name], kind)


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_roles_know_the_public_face_alone(role: Role) -> None:
    for path in role.path.glob("*.py"):
        for statement in ast.walk(ast.parse(path.read_text())):
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(("goldsmith", "roles")):
                assert statement.module == "goldsmith" or statement.level, path


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_an_empty_machine_can_be_probed_and_judged(role: Role, tmp_path: Path) -> None:
    if role.probe_source():
        found(role.name, facts_of(role.name, FakeRun(tmp_path)))
        found(role.name, facts_of(role.name, FakeRun(tmp_path, {"target": "image"})))


def test_all_roles_together_contradict_nobody() -> None:
    promises = {name: list(role.desired(node(), LOCK)) for name, role in ROLES.items() if name != "base"}
    desired = gather({"base": ROLES["base"].desired(node(), LOCK), **promises})
    assert set(desired.packages) == set(FAMILIES)
    assert set(desired.held()) == set(FAMILIES) - {"chrony"}
    for file in desired.files.values():
        assert "goldsmith" in file.content or file.path.endswith(".asc"), file.path
        assert not re.search(r"\{\{|\{%", file.content), file.path


def test_base_promises_apt_before_the_packages() -> None:
    desired = promised("base", base_pool_url="http://10.0.0.1:1/")
    before = {path for path, file in desired.files.items() if file.before_packages}
    assert {path for path in desired.files if path.startswith("/etc/apt/")} <= before
    sources = desired.files["/etc/apt/sources.list.d/goldsmith.sources"].content
    assert "URIs: http://10.0.0.1:1/\nSuites: lab\nComponents: main\nSigned-By: /etc/apt/keyrings/goldsmith.asc\n" in (
        sources
    )
    assert desired.files["/etc/apt/keyrings/goldsmith.asc"].content == "a public key\n"
    pin = desired.files["/etc/apt/preferences.d/00-goldsmith"].content
    assert "Package: *\nPin: release o=goldsmith,n=lab\nPin-Priority: 1001\n" in pin
    for path in ("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"):
        assert all(line.startswith("#") for line in desired.files[path].content.splitlines())
    masked = [unit for unit in desired.units.values() if unit.state == "masked"]
    assert {unit.name for unit in masked} >= {"apt-daily.timer", "apt-daily-upgrade.service"}
    assert all(unit.before_packages for unit in masked)


@pytest.mark.parametrize("variables", [{"base_nofile": 2097152}, {"base_pool_url": "goldsmith-pool:8642"}])
def test_base_refuses_what_would_lock_everybody_out(variables: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=next(iter(variables))):
        promised("base", **variables)


def test_kernel_promises_what_is_declared() -> None:
    desired = promised(
        "kernel", kernel_modules=["ib_umad"], kernel_blacklist=["nouveau"], kernel_parameters=["iommu=pt"],
        kernel_sysctls={"vm.zone_reclaim_mode": 0, "net.ipv4.tcp_rmem": "4096  87380 1"},
    )  # fmt: skip
    assert desired.modules["ib_umad"].state == "loaded" and desired.modules["nouveau"].state == "blacklisted"
    assert desired.sysctls["vm.zone_reclaim_mode"].value == "0"
    assert desired.sysctls["net.ipv4.tcp_rmem"].value == "4096 87380 1"
    assert "iommu=pt" in desired.parameters and len(desired.held()) == 2


def test_nvidia_driver_is_gated_and_names_debians_module_too() -> None:
    desired = promised("nvidia_driver", nvidia_driver_module_options={"NVreg_A": True, "NVreg_B": 2})
    assert desired.modules["nouveau"].state == "blacklisted"
    options = desired.files["/etc/modprobe.d/91-goldsmith-nvidia-options.conf"].content
    assert "options nvidia NVreg_A=1 NVreg_B=2\noptions nvidia-current NVreg_A=1 NVreg_B=2\n" in options
    drop_in = desired.files["/etc/systemd/system/nvidia-persistenced.service.d/90-goldsmith.conf"]
    assert "ExecCondition=" in drop_in.content and drop_in.before_packages
    with pytest.raises(Exception, match="module option"):
        promised("nvidia_driver", nvidia_driver_module_options={"a b": 1})
    without = make_lock({"libcuda1": FAMILIES["libcuda1"]})
    assert "nvidia-persistenced.service" not in promised("nvidia_driver", without).units


def test_nccl_conf_is_written_by_its_parsers_rules() -> None:
    text = promised("nccl").files["/etc/nccl.conf"].content
    assert text.startswith("#") and len(text.splitlines()) == 1 and "=" not in text
    config = {"NCCL_IB_HCA": "=mlx5_0,mlx5_3", "NCCL_CROSS_NIC": 0, "NCCL_PROTO": "Simple"}
    reasons = {"NCCL_PROTO": "a known bug,\nA=B"}
    text = promised("nccl", nccl_config=config, nccl_config_reasons=reasons).files["/etc/nccl.conf"].content
    assert text.splitlines()[1:] == [
        "NCCL_CROSS_NIC=0", "NCCL_IB_HCA==mlx5_0,mlx5_3", "# NCCL_PROTO: a known bug, A B", "NCCL_PROTO=Simple",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"NCCL_ALGO": "Ring"}, "NCCL_ALGO"),
        ({"NCCL_PROTO": "LL128"}, "corrupts"),
        ({"nccl_debug": "INFO"}, "NCCL_ variable"),
        ({"NCCL_X ": "1"}, "blank"),
        ({"NCCL_X": "1 # why"}, "#"),
        ({"NCCL_X": "a\nNCCL_Y=b"}, "line break"),
        ({"NCCL_X": '"a"'}, "quotes"),
        ({"NCCL_X": ""}, "no value"),
        ({"NCCL_X": "a" * 1024}, "1023"),
        ({"LD_PRELOAD": "/tmp/x.so"}, "NCCL_ variable"),
    ],
)
def test_nccl_conf_refuses_what_nccl_would_misread(config: dict[str, str], why: str) -> None:
    with pytest.raises(Exception, match=why):
        promised("nccl", nccl_config=config)
