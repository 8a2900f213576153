"""The roles' probes over fake trees, and what their checks make of them: one field failure a test."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from goldsmith import Node, Severity
from goldsmith.probe.node.run import Result
from tests.unit.make import lock as make_lock
from tests.unit.test_probe_core import FakeRun, kernel_tree, lay
from tests.unit.test_role_all import FAMILIES, PROJECT, ROLES, facts_of, found, node

DATA = PROJECT / "tests/data/probe"
DRIVER = "/usr/lib/x86_64-linux-gnu/nvidia/current"
NCCL = "/usr/lib/x86_64-linux-gnu/libnccl.so.2.22.3"
LDCONFIG = "\tlibnccl.so.2 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnccl.so.2\n"
EMPTY_CACHE = {"ldconfig": Result(0, "0 libs found in cache\n", "")}
BROKEN_CACHE = {
    "ldconfig": Result(1, "", "ldconfig: Can't open cache file /etc/ld.so.cache\n: No such file or directory\n")
}


def cached(soname: str, path: str) -> dict[str, Result]:
    return {"ldconfig": Result(0, f"\t{soname} (libc6,x86-64) => {path}\n", "")}


# --- base


def test_a_foreign_source_is_told_without_its_password(tmp_path: Path) -> None:
    lay(tmp_path, {
        "/etc/apt/sources.list": "# nothing\n",
        "/etc/apt/sources.list.d/goldsmith.sources": "Types: deb\nURIs: http://goldsmith-pool:8642/\nSuites: lab\n",
        "/etc/apt/sources.list.d/cuda.list": "deb [signed-by=/x arch=amd64] https://me:secret@cuda.invalid/repo /\n",
        "/etc/apt/sources.list.d/off.sources": "Types: deb\nURIs: http://off.invalid\nSuites: a\nEnabled: no\n",
        "/etc/apt/sources.list.d/two.sources": "X-A: b\n\n# c\nTypes: deb deb-src\nURIs: http://two.invalid/?token=t\n"
                                               " http://three.invalid\nSuites: a b\n",
        "/etc/apt/sources.list.d/old.list.save": "deb http://save.invalid a b\n",
    })  # fmt: skip
    facts = facts_of("base", FakeRun(tmp_path, container=True))
    assert "secret" not in str(facts) and "token" not in str(facts)
    assert [one["uris"] for one in facts["sources"]] == [
        ["https://cuda.invalid/repo"], ["http://goldsmith-pool:8642/"],
        ["http://two.invalid/", "http://three.invalid"],
    ]  # fmt: skip
    finding = found("base", facts)["base.foreign-source"]
    assert finding.severity == Severity.WARN and finding.fact.startswith("/etc/apt/sources.list.d/")


@pytest.mark.parametrize(
    ("result", "severity"),
    [
        (Result(0, "C0A80001,10.0.0.1,3,1764500000.1,-0.000012,0,0,-1,0,0,0,0,1.0,Normal\n", ""), None),
        (Result(0, "00000000,,0,0.0,0.0,0,0,0,0,0,1,1,0.0,Not synchronised\n", ""), Severity.WARN),
        (Result(1, "506 Cannot talk to daemon\n", ""), Severity.UNKNOWN),
        (Result(127, "", "chronyc: not installed"), Severity.UNKNOWN),
    ],
)
def test_the_clock(tmp_path: Path, result: Result, severity: Severity | None) -> None:
    finding = found("base", facts_of("base", FakeRun(tmp_path, commands={"chronyc": result}))).get(
        "base.time-synchronised"
    )
    assert (finding.severity if finding else None) == severity


# --- kernel

KERNEL = "6.12.117+deb13-amd64"


def test_the_running_kernel_is_the_locked_one(tmp_path: Path) -> None:
    kernel_tree(tmp_path, "6.12.107+deb13-amd64", ["6.12.107+deb13-amd64", KERNEL], [])
    finding = found("kernel", facts_of("kernel", FakeRun(tmp_path)))["kernel.running-is-locked"]
    assert (finding.expected, finding.actual) == (KERNEL, "6.12.107+deb13-amd64")
    assert finding.remedy == "reboot {nodes}"
    assert not found("kernel", facts_of("kernel", FakeRun(tmp_path, container=True)))
    assert not found("kernel", facts_of("kernel", FakeRun(tmp_path)), make_lock())  # an image without a kernel


def test_dkms_needs_headers_and_a_module_for_every_kernel(tmp_path: Path) -> None:
    old = "6.12.107+deb13-amd64"
    kernel_tree(tmp_path, KERNEL, [old, KERNEL], [])
    error = "nv-pci.c:237:13: error: too few arguments to function 'pci_resize_resource'"
    lay(tmp_path, {
        "/usr/sbin/dkms": "", f"/lib/modules/{old}/build/Makefile": "",
        "/var/lib/dkms/nvidia-current/550.163.01/source": "",
        "/var/lib/dkms/nvidia-current/550.163.01/build/make.log": f"make: a\n{error}\nmake: *** Error 2\n",
    })  # fmt: skip
    (tmp_path / f"var/lib/dkms/nvidia-current/kernel-{old}-x86_64").symlink_to(f"550.163.01/{old}/x86_64")
    findings = found("kernel", facts_of("kernel", FakeRun(tmp_path)))
    assert findings["kernel.headers-installed"].fact == f"headers of {KERNEL}"
    built = findings["kernel.dkms-built"]
    assert built.fact == f"nvidia-current/550.163.01 for {KERNEL}" and error in built.evidence[0]


HELLO = "/var/lib/dkms/hello/1.0"
CONF = "PACKAGE_NAME=hello\nPACKAGE_VERSION='1.0'\nAUTOINSTALL=yes\n"
BUILT_FOR = {"modinfo": Result(0, f"filename: x\nversion:        1.0\nvermagic:       {KERNEL} SMP mod_unload\n", "")}
DKMS_LOCK = make_lock(FAMILIES).model_copy(update={"kernel": KERNEL})


def dkms_image(root: Path) -> Path:
    """An image's tree with the module hello, built as it should be."""
    kernel_tree(root, "the build host's", [KERNEL], [KERNEL])
    lay(root, {
        "/usr/sbin/dkms": "", "/usr/src/hello-1.0/dkms.conf": CONF, f"{HELLO}/source/dkms.conf": CONF,
        f"{HELLO}/{KERNEL}/x86_64/module/hello.ko.xz": "m", f"/lib/modules/{KERNEL}/updates/dkms/hello.ko.xz": "m",
        f"/lib/modules/{KERNEL}/modules.dep": "kernel/a.ko.xz:\nupdates/dkms/hello.ko.xz: kernel/a.ko.xz\n",
    })  # fmt: skip
    (root / f"var/lib/dkms/hello/kernel-{KERNEL}-x86_64").symlink_to(f"1.0/{KERNEL}/x86_64")
    return root


def dkms_said(root: Path, target: str = "image", commands: dict[str, Result] = BUILT_FOR) -> str:
    """What is wrong with the module hello of a tree."""
    facts = facts_of("kernel", FakeRun(root, {"target": target}, commands=commands))
    image = target == "image"
    role, there = ROLES["kernel"], Node("lab" if image else "node01", "lab", node().variables, target=target)
    findings = [one for one in role.check(there, DKMS_LOCK, facts) if one.check == "kernel.dkms-built"]
    assert all(one.fact == f"hello/1.0 for {KERNEL}" and one.severity is Severity.FAIL for one in findings)
    return "".join(one.actual for one in findings)


def test_a_module_of_an_image_is_as_it_should_be(tmp_path: Path) -> None:
    assert dkms_said(dkms_image(tmp_path)) == ""
    facts = facts_of("kernel", FakeRun(tmp_path, {"target": "image"}, commands=BUILT_FOR))
    (module,) = facts["dkms"]
    assert (module["module"], module["wanted"], module["registered"], module["missing"]) == ("hello", True, True, {})
    assert module["built"] == [{
        "name": "hello", "path": f"/lib/modules/{KERNEL}/updates/dkms/hello.ko.xz", "version": "1.0", "kernel": KERNEL,
    }]  # fmt: skip


def test_a_module_that_modprobe_wouldnt_find(tmp_path: Path) -> None:
    """dkms says that it is installed: depmod wasn't run, or modules.dep names a file that isn't there."""
    dep = dkms_image(tmp_path) / f"lib/modules/{KERNEL}/modules.dep"
    dep.write_text("kernel/a.ko.xz:\n")
    assert dkms_said(tmp_path) == "installed, and modprobe doesn't find hello" == dkms_said(tmp_path, "live")
    dep.write_text("updates/dkms/hello.ko.xz:\n")
    (tmp_path / f"lib/modules/{KERNEL}/updates/dkms/hello.ko.xz").unlink()
    assert dkms_said(tmp_path) == "installed, and modprobe doesn't find hello"


def test_an_install_that_brought_nothing(tmp_path: Path) -> None:
    (dkms_image(tmp_path) / f"{HELLO[1:]}/{KERNEL}/x86_64/module/hello.ko.xz").unlink()
    assert dkms_said(tmp_path) == "installed, and modprobe doesn't find all of it"


def test_a_module_for_another_kernel(tmp_path: Path) -> None:
    other = {"modinfo": Result(0, "version:        1.0\nvermagic:       6.1.0-1-amd64 SMP\n", "")}
    assert dkms_said(dkms_image(tmp_path), commands=other) == "hello is for 6.1.0-1-amd64"
    assert "no kernel that modinfo can name" in dkms_said(tmp_path, commands={"modinfo": Result(1, "", "no")})


def test_a_source_that_nobody_built(tmp_path: Path) -> None:
    """What dpkg leaves where its scripts don't run: a source, and dkms knows nothing of it."""
    shutil.rmtree(dkms_image(tmp_path) / "var/lib/dkms")
    assert dkms_said(tmp_path) == "not built"
    assert dkms_said(tmp_path, "live") == ""  # somebody may have taken it out
    for text in ("AUTOINSTALL=no", "AUTOINSTALL=", 'AUTOINSTALL="No" # x'):
        lay(tmp_path, {"/usr/src/hello-1.0/dkms.conf": CONF.replace("AUTOINSTALL=yes", text)})
        assert dkms_said(tmp_path) == "", text
    lay(tmp_path, {"/usr/src/hello-1.0/dkms.conf": CONF, "/etc/dkms/hello.conf": "AUTOINSTALL=no\n"})
    assert dkms_said(tmp_path) == ""
    lay(tmp_path, {"/usr/src/hello-1.0/dkms.conf": CONF.replace("=hello", "=../../x")})
    assert dkms_said(tmp_path) == ""


def test_the_images_kernel_counts_though_boot_has_no_file_of_it(tmp_path: Path) -> None:
    shutil.rmtree(dkms_image(tmp_path) / "boot")
    assert dkms_said(tmp_path) == ""
    (tmp_path / f"var/lib/dkms/hello/kernel-{KERNEL}-x86_64").unlink()
    assert dkms_said(tmp_path) == "not built"


# --- nvidia_driver


def gpu_node(root: Path, *, module: str | None = None, libraries: str = "550.163.01", switch: bool = False) -> Path:
    for index, (kind, device) in enumerate([("0x030200", "0x2330"), *([("0x068000", "0x22a3")] if switch else [])]):
        folder = f"/sys/bus/pci/devices/0000:0{index}:00.0"
        lay(root, {f"{folder}/vendor": "0x10de\n", f"{folder}/class": f"{kind}\n", f"{folder}/device": f"{device}\n"})
    lay(root, {"/sys/bus/pci/devices/0000:0a:00.0/vendor": "0x15b3\n"})
    for name in ("libcuda", "libnvidia-ml"):
        lay(root, {f"{DRIVER}/{name}.so.{libraries}": ""})
        (root / f"{DRIVER[1:]}/{name}.so.1").symlink_to(f"{name}.so.{libraries}")
    if module:
        text = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {module}  Release Build  (x@y)  Tue\n"
        lay(root, {"/proc/driver/nvidia/version": text, "/sys/module/nvidia/version": module + "\n"})
    return kernel_tree(root, KERNEL, [KERNEL], [])


def driver_run(root: Path, on_disk: str | None = "550.163.01", **rest: Any) -> FakeRun:
    if on_disk:
        lay(
            root, {f"/lib/modules/{KERNEL}/modules.dep": "kernel/a.ko:\nupdates/dkms/nvidia-current-open.ko.xz: a.ko\n"}
        )
    commands = {
        "ldconfig": Result(0, "".join(
            f"\t{name}.so.1 (libc6,x86-64) => {DRIVER}/{name}.so.1\n" for name in ("libcuda", "libnvidia-ml")), ""),
        "modinfo": Result(0, f"filename: x\nversion:        {on_disk}\nlicense:        Dual MIT/GPL\n", ""),
        **rest.pop("commands", {}),
    }  # fmt: skip
    return FakeRun(root, commands=commands, **rest)


def test_a_healthy_gpu_node_has_no_finding(tmp_path: Path) -> None:
    facts = facts_of("nvidia_driver", driver_run(gpu_node(tmp_path, module="550.163.01")))
    assert facts["loaded"] == {"version": "550.163.01", "open": True}
    assert [one["class"] for one in facts["gpus"]] == ["0x030200"] and facts["nvswitches"] == []
    assert facts["on_disk"][0]["path"].endswith("/updates/dkms/nvidia-current-open.ko.xz")
    assert facts["on_disk"][0]["open"] is True
    assert not found("nvidia_driver", facts)


@pytest.mark.parametrize(
    ("taken", "with_files", "severity"),
    [("/usr/local/lib/libcuda.so.1", False, Severity.UNKNOWN), ("/usr/local/lib/libcuda.so.1", True, Severity.FAIL),
     ("/usr/local/lib/libcuda.so.550.163.01", True, Severity.FAIL),
     ("/usr/local/cuda-12.8/compat/libcuda.so.570.124.06", False, Severity.FAIL)],
)  # fmt: skip
def test_the_loader_takes_another_libcuda_than_the_packages(
    tmp_path: Path, taken: str, with_files: bool, severity: Severity
) -> None:
    lay(gpu_node(tmp_path, module="550.163.01"), {taken: ""})
    files = {f"{DRIVER}/libcuda.so.550.163.01": {"size": 1, "sha256": "a" * 64}} if with_files else {}
    lock = make_lock(FAMILIES, libcuda1=files)
    assert not found("nvidia_driver", facts_of("nvidia_driver", driver_run(tmp_path)), lock)
    run = driver_run(tmp_path, commands=cached("libcuda.so.1", taken))
    findings = found("nvidia_driver", facts_of("nvidia_driver", run), lock)
    assert list(findings) == ["nvidia_driver.library-matches-lock"]
    finding = findings["nvidia_driver.library-matches-lock"]
    assert (finding.severity, finding.fact) == (severity, "libcuda.so.1") and taken in finding.actual


def test_no_gpu_is_no_finding(tmp_path: Path) -> None:
    gpu_node(tmp_path)
    shutil.rmtree(tmp_path / "sys")
    assert not found("nvidia_driver", facts_of("nvidia_driver", driver_run(tmp_path, on_disk=None)))


def test_a_container_isnt_judged_by_its_hosts_gpus(tmp_path: Path) -> None:
    facts = facts_of("nvidia_driver", driver_run(gpu_node(tmp_path, module="590.48.01"), container=True))
    assert facts["gpus"] == [] and facts["loaded"] is None
    assert not found("nvidia_driver", facts)


def test_the_captured_mismatch_of_module_and_libraries(tmp_path: Path) -> None:
    lines = (DATA / "nvidia_driver_mismatch_evidence.txt").read_text().splitlines()
    gpu_node(tmp_path, libraries="525.85.12")
    lay(tmp_path, {"/proc/driver/nvidia/version": next(line for line in lines if line.startswith("NVRM")) + "\n"})
    lock = make_lock({"libcuda1": ("525.85.12-1", "nvidia-graphics-drivers", "driver")})
    facts = facts_of("nvidia_driver", driver_run(tmp_path, on_disk="525.85.12"))
    assert facts["loaded"] == {"version": "520.56.06", "open": False}
    findings = found("nvidia_driver", facts, lock)
    assert list(findings) == ["nvidia_driver.module-matches-library"]
    finding = findings["nvidia_driver.module-matches-library"]
    assert "525.85.12" in finding.expected and "520.56.06" in finding.actual and finding.remedy.startswith("reboot")
    # the old module is on disk too: a reboot won't heal it (oddmario/NVIDIA-Ubuntu-Driver-Guide#4)
    stale = found("nvidia_driver", facts_of("nvidia_driver", driver_run(tmp_path, on_disk="520.56.06")), lock)
    assert "initramfs" in stale["nvidia_driver.module-matches-library"].remedy
    assert stale["nvidia_driver.module-on-disk"].actual == "module 520.56.06"


def test_two_drivers_on_disk(tmp_path: Path) -> None:
    lay(gpu_node(tmp_path, module="550.163.01"), {"/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.10": ""})
    lay(tmp_path, {"/usr/local/cuda-12.8/compat/libcuda.so.570.124.06": ""})  # forward compatibility: meant so
    finding = found("nvidia_driver", facts_of("nvidia_driver", driver_run(tmp_path)))[
        "nvidia_driver.one-library-version"
    ]
    assert finding.actual == "550.163.01 and 570.86.10"


def test_a_gpu_without_a_module(tmp_path: Path) -> None:
    lay(gpu_node(tmp_path), {"/sys/module/nouveau/refcnt": "0"})
    findings = found("nvidia_driver", facts_of("nvidia_driver", driver_run(tmp_path, on_disk=None)))
    assert set(findings) == {"nvidia_driver.module-loaded", "nvidia_driver.module-on-disk"}
    assert "nouveau is loaded" in findings["nvidia_driver.module-loaded"].evidence


def test_the_next_boots_kernel_has_no_module(tmp_path: Path) -> None:
    gpu_node(tmp_path, module="550.163.01")
    lay(
        tmp_path, {"/boot/vmlinuz-6.12.120+deb13-amd64": "", "/lib/modules/6.12.120+deb13-amd64/modules.dep": "x.ko:\n"}
    )
    finding = found("nvidia_driver", facts_of("nvidia_driver", driver_run(tmp_path)))["nvidia_driver.module-on-disk"]
    assert "6.12.120" in finding.fact and finding.actual == "no module"


def test_an_image_with_a_dkms_driver_needs_its_module(tmp_path: Path) -> None:
    kernel_tree(tmp_path, "the build host's", [KERNEL], [KERNEL])
    lock = make_lock({**FAMILIES, "nvidia-open-kernel-dkms": ("550.163.01-2", "nvidia-open", "driver")})
    facts = facts_of("nvidia_driver", FakeRun(tmp_path, {"target": "image"}))
    assert [one["kernel"] for one in facts["on_disk"]] == [KERNEL]
    assert found("nvidia_driver", facts, lock)["nvidia_driver.module-on-disk"].actual == "no module"


def test_an_images_module_is_its_libraries_version_and_for_its_kernel(tmp_path: Path) -> None:
    lock = make_lock({**FAMILIES, "nvidia-open-kernel-dkms": ("550.163.01-2", "nvidia-open", "driver")})
    lock = lock.model_copy(update={"kernel": KERNEL})
    there = Node("lab", "lab", node().variables, target="image")

    def said(on_disk: str | None = "550.163.01") -> list[tuple[Severity, str]]:
        facts = facts_of("nvidia_driver", driver_run(tmp_path, on_disk, want={"target": "image"}))
        findings = ROLES["nvidia_driver"].check(there, lock, facts)
        return [(one.severity, one.actual) for one in findings if one.check == "nvidia_driver.module-on-disk"]

    gpu_node(tmp_path)
    assert said() == []
    assert said("535.274.02") == [(Severity.FAIL, "module 535.274.02")]
    (tmp_path / f"lib/modules/{KERNEL}/modules.dep").write_text("kernel/a.ko:\n")
    assert said(None) == [(Severity.FAIL, "no module")]
    # no file of that kernel in /boot: a module is wanted for it all the same, and the builder's kernel counts nothing
    (tmp_path / f"boot/vmlinuz-{KERNEL}").unlink()
    assert said(None) == [(Severity.FAIL, "no module")]


def test_modinfo_missing_is_unknown_not_fine(tmp_path: Path) -> None:
    gpu_node(tmp_path, module="550.163.01")
    run = driver_run(tmp_path, commands={"modinfo": Result(127, "", "modinfo: not installed")})
    finding = found("nvidia_driver", facts_of("nvidia_driver", run))["nvidia_driver.module-on-disk"]
    assert finding.severity == Severity.UNKNOWN


@pytest.mark.parametrize(
    ("installed", "actual"),
    [("nvidia-fabricmanager-550 550.127.05-1 ii \n", "550.127.05"), ("", "not installed"),
     ("nvidia-fabricmanager-550 550.163.01-1 ii \n", None)],
)  # fmt: skip
def test_the_fabric_manager_is_the_drivers_full_version(tmp_path: Path, installed: str, actual: str | None) -> None:
    gpu_node(tmp_path, module="550.163.01", switch=True)
    if installed:
        lay(tmp_path, {"/var/lib/dpkg/info/nvidia-fabricmanager-550.list": ""})
    run = driver_run(tmp_path, commands={"dpkg-query": Result(0, installed, "")})
    finding = found("nvidia_driver", facts_of("nvidia_driver", run)).get("nvidia_driver.fabricmanager-matches")
    assert (finding.actual if finding else None) == actual


def test_nvidia_smis_version_is_read_from_the_file(tmp_path: Path) -> None:
    lay(tmp_path, {"/usr/bin/nvidia-smi": "ELF\x00%s\x00570.86.10\x00 550.1\x00"})
    assert facts_of("nvidia_driver", FakeRun(tmp_path))["nvidia_smi"]["version"] == "570.86.10"


# --- cuda


def test_cuda_by_the_version_in_its_name(tmp_path: Path) -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    lay(tmp_path, {f"{lib}/libcudart.so.12.4.127": ""})
    (tmp_path / f"{lib[1:]}/libcudart.so.12").symlink_to("libcudart.so.12.4.127")
    run = FakeRun(tmp_path, commands=cached("libcudart.so.12", f"{lib}/libcudart.so.12"))
    assert not found("cuda", facts_of("cuda", run))
    lay(tmp_path, {"/usr/local/cuda-12.8/lib64/libcudart.so.12.8.57": ""})
    assert found("cuda", facts_of("cuda", run))["cuda.one-library"].actual == "12.4.127 and 12.8.57"
    (tmp_path / f"{lib[1:]}/libcudart.so.12.4.127").unlink()
    run.commands = EMPTY_CACHE
    assert found("cuda", facts_of("cuda", run))["cuda.library-matches-lock"].actual == "12.8.57"


@pytest.mark.parametrize(
    ("taken", "healed"),
    [("/usr/local/lib/libcudart.so.12", False), ("/usr/local/lib/libcudart.so.12.4.127", False),
     ("/usr/lib/x86_64-linux-gnu/libcudart.so.12", True)],
)  # fmt: skip
def test_the_loader_takes_another_cuda_than_the_packages(tmp_path: Path, taken: str, healed: bool) -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    lay(tmp_path, {f"{lib}/libcudart.so.12.4.127": "", taken: ""})
    lock = make_lock(FAMILIES, libcudart12={
        f"{lib}/libcudart.so.12": {"link": "libcudart.so.12.4.127"},
        f"{lib}/libcudart.so.12.4.127": {"size": 1, "sha256": "a" * 64},
    })  # fmt: skip
    run = FakeRun(tmp_path, commands=cached("libcudart.so.12", taken))
    finding = found("cuda", facts_of("cuda", run), lock)["cuda.library-matches-lock"]
    assert finding.severity == Severity.FAIL and taken in finding.actual and ("deploy" in finding.remedy) == healed
    run.commands = cached("libcudart.so.12", f"{lib}/libcudart.so.12.4.127")
    assert not found("cuda", facts_of("cuda", run), lock)


# --- nccl


def nccl_lock(content: bytes) -> Any:
    file = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return make_lock(FAMILIES, libnccl2={NCCL: file})


def nccl_run(root: Path, code: int = 22203, **rest: Any) -> FakeRun:
    import sys

    commands = {"ldconfig": Result(0, LDCONFIG, ""), sys.executable: Result(0, f"0 {code}\n", "")}
    return FakeRun(root, commands=commands, **rest)


def nccl_node(root: Path, content: bytes = b"the library") -> Path:
    lay(root, {NCCL: ""})
    (root / NCCL[1:]).write_bytes(content)
    (root / NCCL[1:]).parent.joinpath("libnccl.so.2").symlink_to("libnccl.so.2.22.3")
    return root


@pytest.fixture(autouse=True)
def _not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder is others' to write: as root, the probe wouldn't load a library from it."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_the_locked_library_is_fine(tmp_path: Path) -> None:
    facts = facts_of("nccl", nccl_run(nccl_node(tmp_path)))
    assert [one["path"] for one in facts["libraries"]] == [NCCL] and facts["loader"] == NCCL
    assert facts["libraries"][0]["version"] == "2.22.3" and facts["walked"] is True
    assert not found("nccl", facts, nccl_lock(b"the library"))


def test_another_content_under_the_same_package_version(tmp_path: Path) -> None:
    """node01 of the seed story: dpkg says that all is well."""
    facts = facts_of("nccl", nccl_run(nccl_node(tmp_path, b"another thing"), code=22005))
    finding = found("nccl", facts, nccl_lock(b"the library"))["nccl.library-matches-lock"]
    assert finding.severity == Severity.FAIL and "NCCL 2.20.5" in finding.actual and "2.22.3" in finding.expected
    assert finding.since


def test_the_link_itself_replaced_by_a_file(tmp_path: Path) -> None:
    link = nccl_node(tmp_path) / NCCL[1:].replace(".2.22.3", ".2")
    link.unlink()
    link.write_bytes(b"somebody's")
    finding = found("nccl", facts_of("nccl", nccl_run(tmp_path)), nccl_lock(b"the library"))[
        "nccl.library-matches-lock"
    ]
    assert finding.fact.endswith("/libnccl.so.2") and "of no package" in finding.actual


def test_a_second_version_elsewhere(tmp_path: Path) -> None:
    lay(nccl_node(tmp_path), {"/opt/team/a/b/libnccl.so.2": "x"})
    facts = facts_of("nccl", nccl_run(tmp_path))
    for library in facts["libraries"]:
        library["version"] = "2.16.2" if library["path"].startswith("/opt") else "2.22.3"
    finding = found("nccl", facts, nccl_lock(b"the library"))["nccl.one-version"]
    assert (finding.fact, finding.actual) == ("/opt/team/a/b/libnccl.so.2", "NCCL 2.16.2")


def test_a_library_that_others_may_replace_isnt_loaded_by_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    nccl_node(tmp_path, b"\0NCCL version 2.22.3+cuda12.1\0")
    (tmp_path / NCCL[1:]).chmod(0o666)
    library = facts_of("nccl", nccl_run(tmp_path, code=99999))["libraries"][0]
    assert library["asked"] is False and library["version"] == "2.22.3"


def test_no_library_at_all(tmp_path: Path) -> None:
    run = FakeRun(tmp_path, commands=EMPTY_CACHE)
    finding = found("nccl", facts_of("nccl", run), nccl_lock(b""))["nccl.library-matches-lock"]
    assert finding.actual == "not in the loader's cache"


@pytest.mark.parametrize("path", ["/usr/local/lib/libnccl.so.2", "/usr/lib/x86_64-linux-gnu/libnccl.so.2"])
def test_deploy_is_named_only_where_it_heals_the_loaders_nccl(tmp_path: Path, path: str) -> None:
    (nccl_node(tmp_path) / NCCL[1:]).parent.joinpath("libnccl.so.2").unlink()
    lay(tmp_path, {path: "somebody's"})
    library = {"size": 11, "sha256": hashlib.sha256(b"the library").hexdigest()}
    lock = make_lock(FAMILIES, libnccl2={NCCL: library, "/usr/lib/x86_64-linux-gnu/libnccl.so.2": {"link": "x"}})
    run = nccl_run(tmp_path)
    run.commands["ldconfig"] = Result(0, f"\tlibnccl.so.2 (libc6,x86-64) => {path}\n", "")
    finding = found("nccl", facts_of("nccl", run), lock)["nccl.library-matches-lock"]
    assert finding.fact == path and ("deploy" in finding.remedy) == ("/local/" not in path)


def test_a_search_for_nccl_that_was_cut_off_is_unknown(tmp_path: Path) -> None:
    facts = {**facts_of("nccl", nccl_run(nccl_node(tmp_path))), "walked": False}
    finding = found("nccl", facts, nccl_lock(b"the library"))["nccl.search-complete"]
    assert finding.severity == Severity.UNKNOWN and "nccl_search_paths" in finding.remedy
    assert found("nccl", facts, nccl_lock(b"the library"), nccl_search_paths=["/mnt/share"])
    assert not found("nccl", facts, nccl_lock(b"the library"), nccl_search_paths=["/opt/nccl/lib"])


@pytest.mark.parametrize(("code", "version"), [(22203, "2.22.3"), (2808, "2.8.8"), (21005, "2.10.5"), (2402, "2.4.2")])
def test_both_ways_in_which_nccl_counts(tmp_path: Path, code: int, version: str) -> None:
    assert facts_of("nccl", nccl_run(nccl_node(tmp_path), code))["libraries"][0]["version"] == version


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("NCCL_IB_HCA==mlx5_1 # x", "after|follows"),
        (" NCCL_DEBUG = INFO", "blank"),
        ("export NCCL_IB_HCA=mlx5_0", "export"),
        ("NCCL_SOCKET_IFNAME='bond0'", "quotes"),
        ("NCCL_IB_TIMEOUT=22\r", "blank|line break"),
        ("NCCL_ALGO=Ring", "fail"),
        ("NCCL_DEBUG=INFO", "debugging"),
        ("NCCL_CROSS_NIC=0\nNCCL_CROSS_NIC=1", "twice"),
    ],
)
def test_nccl_conf_lint(tmp_path: Path, line: str, why: str) -> None:
    lay(nccl_node(tmp_path), {"/etc/nccl.conf": f"# NCCL_A = b\n{line}\n"})
    finding = found("nccl", facts_of("nccl", nccl_run(tmp_path)), nccl_lock(b"the library"))["nccl.conf-lint"]
    assert any(word in finding.actual for word in why.split("|")), finding.actual


def test_a_plain_nccl_conf_and_no_secrets(tmp_path: Path) -> None:
    lay(nccl_node(tmp_path), {"/etc/nccl.conf": "# a\nNCCL_IB_HCA==mlx5_0,mlx5_3\nNCCL_NET_TOKEN=hunter2\nnonsense\n",
                              "/etc/environment": "PATH=/bin\nNCCL_P2P_DISABLE=1\n"})  # fmt: skip
    facts = facts_of("nccl", nccl_run(tmp_path))
    assert "hunter2" not in str(facts) and facts["conf"][0] == {
        "line": 2,
        "key": "NCCL_IB_HCA",
        "value": "=mlx5_0,mlx5_3",
    }
    findings = found("nccl", facts, nccl_lock(b"the library"))
    assert findings["nccl.conf-lint"].fact == "/etc/environment:2"


# --- all of them


@pytest.mark.parametrize("role", ["cuda", "nccl", "nvidia_driver"])
def test_a_loaders_cache_that_cant_be_read_is_unknown(tmp_path: Path, role: str) -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    nccl_node(gpu_node(tmp_path))
    lay(tmp_path, {f"{lib}/libcudart.so.12.4.127": ""})
    run = nccl_run(tmp_path)
    run.commands |= BROKEN_CACHE
    finding = found(role, facts_of(role, run))[f"{role}.library-matches-lock"]
    assert finding.severity == Severity.UNKNOWN and "ld.so.cache : No such" in finding.evidence[0]
