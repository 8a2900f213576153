"""The pytorch role's probe over fake trees and tiny ELF files, and what its check makes of them."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest

from goldsmith import Severity
from goldsmith.probe.node.run import Result
from tests.unit.make import lock as make_lock
from tests.unit.test_probe_core import FakeRun, lay
from tests.unit.test_role_all import FAMILIES, LOCK, facts_of, found
from tests.unit.test_role_checks import BROKEN_CACHE, EMPTY_CACHE, LDCONFIG, NCCL, nccl_node


def tiny_elf(needed: list[str], *, rpath: str = "", runpath: str = "") -> bytes:
    """A 64-bit ELF file with a PT_LOAD over everything (at 0x10000) and a PT_DYNAMIC, as small as the loader reads."""
    strings, offsets = b"\0", {}
    for text in [*needed, rpath, runpath]:
        offsets[text] = len(strings)
        strings += text.encode() + b"\0"
    base, at = 0x10000, 64 + 2 * 56
    entries = [(1, offsets[name]) for name in needed]
    entries += [(15, offsets[rpath])] if rpath else []
    entries += [(29, offsets[runpath])] if runpath else []
    size = (len(entries) + 3) * 16
    entries += [(5, base + at + size), (10, len(strings)), (0, 0)]
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    total = at + size + len(strings)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, base, base, total, total, 0x1000)
    dynamic = struct.pack("<IIQQQQQQ", 2, 4, at, base + at, base + at, size, size, 8)
    return head + load + dynamic + b"".join(struct.pack("<qQ", *entry) for entry in entries) + strings


VENV = "/opt/train/lib/python3.12/site-packages"
VERSION = (
    "from typing import Optional\n__version__ = '{}'\ndebug = False\ncuda: Optional[str] = {}\ngit_version = 'abc'\n"
)


def put(root: Path, path: str, content: bytes) -> None:
    lay(root, {path: ""})
    (root / path[1:]).write_bytes(content)


def wheel(root: Path, runpath: str = "$ORIGIN/../../nvidia/nccl/lib:$ORIGIN") -> Path:
    """A PyTorch for CUDA as its wheels are laid out, with NCCL in a wheel of its own."""
    lay(root, {f"{VENV}/torch/version.py": VERSION.format("2.6.0+cu124", "'12.4'"),
               f"{VENV}/nvidia_nccl_cu12-2.21.5.dist-info/METADATA": "",
               f"{VENV}/nvidia_cudnn_cu12-9.1.0.70.dist-info/METADATA": ""})  # fmt: skip
    put(
        root,
        f"{VENV}/torch/_C.cpython-312-x86_64-linux-gnu.so",
        tiny_elf(["libtorch_python.so"], runpath="$ORIGIN/lib"),
    )
    put(root, f"{VENV}/torch/lib/libtorch_python.so", tiny_elf(["libtorch_cuda.so"], runpath="$ORIGIN"))
    put(root, f"{VENV}/torch/lib/libtorch_cuda.so", tiny_elf(["libnccl.so.2", "libc.so.6"], runpath=runpath))
    put(root, f"{VENV}/nvidia/nccl/lib/libnccl.so.2", tiny_elf([]))
    return root


def test_a_wheel_loads_its_own_nccl(tmp_path: Path) -> None:
    facts = facts_of("pytorch", FakeRun(wheel(tmp_path)))
    assert facts["environments"] == [{
        "path": VENV, "version": "2.6.0+cu124", "cuda": "12.4", "git": "abc", "cudnn": "9.1.0.70",
        "nccl_wheels": ["nvidia_nccl_cu12-2.21.5"], "nccl": f"{VENV}/nvidia/nccl/lib/libnccl.so.2",
        "nccl_note": f"needed by {VENV}/torch/lib/libtorch_cuda.so",
    }]  # fmt: skip
    assert list(found("pytorch", facts)) == ["pytorch.version-matches-lock"]  # the locked one isn't there
    assert not found("pytorch", facts, make_lock({"libnccl2": FAMILIES["libnccl2"]}))


def test_the_systems_nccl_before_the_wheels(tmp_path: Path) -> None:
    """pytorch#119072: undefined symbol ncclCommRegister."""
    nccl_node(wheel(tmp_path, runpath="$ORIGIN"))
    run = FakeRun(tmp_path, commands={"ldconfig": Result(0, LDCONFIG, "")})
    finding = found("pytorch", facts_of("pytorch", run))["pytorch.nccl-loaded"]
    assert finding.actual == NCCL and finding.expected == "its own wheel's NCCL"
    # nowhere at all
    finding = found("pytorch", facts_of("pytorch", FakeRun(tmp_path, commands=EMPTY_CACHE)))["pytorch.nccl-loaded"]
    assert finding.severity == Severity.FAIL and "isn't found" in finding.actual
    # nobody knows
    finding = found("pytorch", facts_of("pytorch", FakeRun(tmp_path, commands=BROKEN_CACHE)))["pytorch.nccl-loaded"]
    assert finding.severity == Severity.UNKNOWN and "ld.so.cache : No such" in finding.evidence[0]


def test_rpath_is_inherited_runpath_isnt(tmp_path: Path) -> None:
    folder = "/opt/e/lib/python3.12/site-packages/torch"
    for kind, loaded in (("rpath", "/deep/libnccl.so.2"), ("runpath", None)):
        root = tmp_path / kind
        lay(root, {f"{folder}/version.py": VERSION.format("2.0.0", "'11.8'")})
        put(root, f"{folder}/_C.so", b"")
        put(root, f"{folder}/_C.x.so", tiny_elf(["liba.so"], **{kind: "/deep:$ORIGIN/lib"}))
        put(root, f"{folder}/lib/liba.so", tiny_elf(["libnccl.so.2"]))
        put(root, "/deep/libnccl.so.2", tiny_elf([]))
        assert facts_of("pytorch", FakeRun(root))["environments"][0]["nccl"] == loaded, kind


def test_debians_is_for_the_cpu_and_the_locked_version(tmp_path: Path) -> None:
    place = "/usr/lib/python3/dist-packages"
    lay(tmp_path, {f"{place}/torch/version.py": VERSION.format("2.6.0+debian", None)})
    put(tmp_path, f"{place}/torch/_C.cpython-313-x86_64-linux-gnu.so", tiny_elf(["libtorch_python.so.2.6"]))
    facts = facts_of("pytorch", FakeRun(tmp_path))
    assert facts["environments"][0]["nccl_note"] == "built for the CPU: no NCCL"
    assert not found("pytorch", facts)
    lay(tmp_path, {f"{place}/torch/version.py": VERSION.format("2.5.1", None)})
    finding = found("pytorch", facts_of("pytorch", FakeRun(tmp_path)))["pytorch.version-matches-lock"]
    assert finding.actual == "PyTorch 2.5.1" and "python3-torch 2.6.0+dfsg-7" in finding.expected
    assert LOCK.version("python3-torch") == "2.6.0+dfsg"


SYSTEM = "/usr/lib/python3/dist-packages"


def debians_torch(root: Path) -> Path:
    """python3-torch, two of its files, and dpkg's sums of them."""
    files = {f"{SYSTEM}/torch/version.py": VERSION.format("2.6.0+debian", None), f"{SYSTEM}/torch/optim/adam.py": "a\n"}
    sums = "".join(f"{hashlib.md5(text.encode()).hexdigest()}  {path[1:]}\n" for path, text in files.items())
    lay(root, {**files, "/usr/bin/python3.13": "", "/var/lib/dpkg/info/python3-torch.md5sums": sums,
               "/var/lib/dpkg/info/python3-torch-geometric.md5sums": f"{'0' * 32}  usr/x.py\n"})  # fmt: skip
    (root / "usr/bin/python3").symlink_to("python3.13")
    return root


def test_another_pytorch_before_the_packages(tmp_path: Path) -> None:
    """`pip install torch` as root: dpkg says that all is well, and Python imports the other one."""
    debians_torch(tmp_path)
    # another Python's, and a folder that Debian's doesn't look into
    for folder in ("python3.11/dist-packages", "python3.13/site-packages"):
        lay(tmp_path, {f"/usr/local/lib/{folder}/torch/version.py": VERSION.format("1.0.0", None)})
    assert not found("pytorch", facts_of("pytorch", FakeRun(tmp_path)))
    local = "/usr/local/lib/python3.13/dist-packages"
    lay(tmp_path, {f"{local}/torch/version.py": VERSION.format("2.8.0+cpu", None)})
    facts = facts_of("pytorch", FakeRun(tmp_path))
    assert [one["path"] for one in facts["system"]] == [local, SYSTEM]
    finding = found("pytorch", facts)["pytorch.version-matches-lock"]
    assert (finding.severity, finding.fact) == (Severity.FAIL, local)
    assert "2.6.0" in finding.expected and "2.8.0+cpu" in finding.actual and "deploy" not in finding.remedy


def test_a_checkout_that_a_pth_file_names_is_before_the_packages(tmp_path: Path) -> None:
    pth = "# a\nimport x\n\n/home/me/pytorch\n"
    lay(debians_torch(tmp_path), {"/usr/local/lib/python3.13/dist-packages/easy-install.pth": pth,
                                  "/home/me/pytorch/torch/__init__.py": ""})  # fmt: skip
    finding = found("pytorch", facts_of("pytorch", FakeRun(tmp_path)))["pytorch.version-matches-lock"]
    assert finding.fact == "/home/me/pytorch" and "unknown version" in finding.actual


def test_the_locked_pytorch_is_gone_from_its_place(tmp_path: Path) -> None:
    (debians_torch(tmp_path) / SYSTEM[1:] / "torch/version.py").unlink()
    findings = found("pytorch", facts_of("pytorch", FakeRun(tmp_path)))
    assert findings["pytorch.version-matches-lock"].actual == "no PyTorch"
    assert f"{SYSTEM}/torch/version.py" in findings["pytorch.files-match-package"].actual


def test_edited_python_files_of_the_package(tmp_path: Path) -> None:
    assert facts_of("pytorch", FakeRun(debians_torch(tmp_path)))["packaged"] == [
        {"package": "python3-torch", "checked": 2, "wrong": [], "since": None}
    ]
    lay(tmp_path, {f"{SYSTEM}/torch/optim/adam.py": "b\n"})
    facts = facts_of("pytorch", FakeRun(tmp_path))
    finding = found("pytorch", facts)["pytorch.files-match-package"]
    assert finding.severity == Severity.FAIL and finding.actual == f"edited or gone: {SYSTEM}/torch/optim/adam.py"
    assert finding.since and "apt-get install --reinstall" in finding.remedy and "python3-torch" in finding.remedy
    facts["packaged"][0]["wrong"] = [f"/{number}.py" for number in range(9)]
    assert found("pytorch", facts)["pytorch.files-match-package"].actual.endswith("/4.py and 4 more")


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"\x7fELF\x01\x01" + bytes(90), tiny_elf(["a"])[:150], bytes(500)]
)
def test_a_file_that_is_no_whole_elf_harms_nobody(tmp_path: Path, content: bytes) -> None:
    wheel(tmp_path)
    put(tmp_path, f"{VENV}/torch/lib/libtorch_python.so", content)
    environment = facts_of("pytorch", FakeRun(tmp_path))["environments"][0]
    assert environment["version"] == "2.6.0+cu124"
