"""Every rule of the linter against something broken, and against the nearest thing that isn't."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from goldsmith.lint.facts import Facts, packaged_facts
from goldsmith.lint.rules import RULES
from goldsmith.model.finding import Severity
from tests.unit.lint_cases import KERNEL, KEY, LOCKED, Change, Packages, hits, lock_of, said

WARN, FAIL, UNKNOWN = Severity.WARN, Severity.FAIL, Severity.UNKNOWN


@dataclass(frozen=True)
class Case:
    """change: to an image that is right. locked: to its lock's packages; without it and wheels, there is no lock.
    severity: None for a change that the rule must not mind. says: words of the hit."""

    rule: str
    change: Change
    severity: Severity | None = None
    says: tuple[str, ...] = ()
    locked: Packages | None = None
    wheels: tuple[str, ...] = field(default=())
    kernel: str | None = KERNEL


def driver(version: str, *packages: str, **more: object) -> Change:
    return {"driver": {"version": version, **({"packages": list(packages)} if packages else {}), **more},
            "fabricmanager": {"version": version}}  # fmt: skip


DEBIAN: Change = {"release": "6.12.117+deb13-amd64", "packages": [
    "linux-image-6.12.117+deb13-amd64", "linux-headers-6.12.117+deb13-amd64"]}  # fmt: skip


def torch(*requirements: str, **more: object) -> Change:
    return {"python": {"train": {"requirements": list(requirements), **more}}}


def gpu(name: str, platform: str | None = "pcie") -> Change:
    return {"hardware": {"gpus": [name], "platform": platform}}


def repository(**change: object) -> Change:
    return {"repositories": {"other": {"uri": "https://example.org/other", "suites": ["/"], "key": KEY, **change}}}


def moved(name: str, package: str, version: str | None, **more: object) -> Change:
    """A well-known set, as a family of the image's own instead."""
    return {"stack": {name: None}, "families": {"mine": {"version": version, "packages": [package], **more}}}


def based(name: str, package: str) -> Change:
    """A well-known set's package among those that the image starts from."""
    return {"stack": {name: None}, "base": {"packages": ["python3", package]}}


CASES = [
    # versions
    Case("V1", {"stack": {"driver": {"version": None}}}, UNKNOWN, ("driver", "no pin and no lock")),
    Case("V1", {"stack": {"nccl": {"version": None}}}, UNKNOWN, ("nccl",)),
    Case("V1", {"stack": {"cuda": {"version": None, "packages": ["nsight-compute"]}}}, UNKNOWN, ("CUDA",)),
    Case("V1", {"stack": {"driver": {"version": None}}}, locked={}),
    Case("V1", {"stack": {"nccl": {"version": None, "versions": {"libnccl2": "latest"}}}}, UNKNOWN),
    Case("V1", {"stack": {"cuda": {"version": None, "packages": ["cuda-toolkit-13-0", "nsight-compute"]}}}),
    Case("V1", {"stack": {"nccl": {"version": None, "versions": {"libnccl2": "2.28.9"}}}}),
    Case("V2", {}, FAIL, ("580.126.20", "580.105.08"),
         locked={"libnvidia-gl-580": ("580.126.20-0ubuntu1", "driver", "cuda")}),
    Case("V2", {}, locked={"libnvidia-gl-580": ("580.105.08-1ubuntu2", "driver", "cuda")}),
    Case("V2", {"stack": {"driver": {"packages": ["libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-modprobe"],
                                     "versions": {"nvidia-modprobe": "610.43.02"}}}},
         locked={"nvidia-modprobe": ("610.43.02-1", "driver", "cuda")}),
    Case("CT1", {"stack": {"container_toolkit": {"version": "1.17.7"}}}, FAIL, ("1.17.7", "enroot")),
    Case("CT1", {"stack": {"container_toolkit": {"version": "1.17.6"}}}),
    Case("CT2", {"stack": {"container_toolkit": {"version": "1.16.2"}}}, WARN, ("1.16.2", "1.17.8", "CVE-2025-23266")),
    Case("CT2", {"stack": {"container_toolkit": {"version": "1.17.10"}}}),
    # … wherever the packages stand
    Case("V1", moved("fabricmanager", "nvidia-fabricmanager", None), UNKNOWN, ("nvidia-fabricmanager",)),
    Case("V1", moved("fabricmanager", "nvidia-fabricmanager", "580.105.08")),
    Case("V1", moved("fabricmanager", "nvidia-fabricmanager", None), locked={}),
    Case("V1", based("fabricmanager", "nvidia-fabricmanager"), UNKNOWN, ("nvidia-fabricmanager",)),
    Case("V1", based("fabricmanager", "nvidia-fabricmanager"), locked={}),
    Case("V1", based("nccl", "libnccl2"), UNKNOWN, ("libnccl2",)),
    Case("V1", based("container_toolkit", "nvidia-container-toolkit"), UNKNOWN, ("nvidia-container-toolkit",)),
    Case("V1", based("driver", "nvidia-open-580"), UNKNOWN, ("nvidia-open-580",)),
    Case("V1", {"base": {"packages": ["nvidia-utils-580"]}}, UNKNOWN, ("nvidia-utils-580",)),
    Case("V1", {"base": {"packages": ["nvidia-imex"]}}, UNKNOWN, ("nvidia-imex",)),
    # nothing of a driver, on a machine that needs one
    Case("V1", {"stack": None}, UNKNOWN, ("hgx", "H200", "no package of a driver")),
    Case("V1", {"stack": {"driver": None}}, UNKNOWN, ("hgx", "H200", "no package of a driver")),
    Case("V1", {"stack": {"driver": None}, "hardware": {"platform": None}}, UNKNOWN, ("H200",)),
    Case("V1", {"stack": {"driver": None}, "hardware": {"platform": "nvl72", "gpus": None}}, UNKNOWN, ("nvl72",)),
    Case("V1", {"stack": {"driver": None}, "hardware": None}, UNKNOWN, ("nvidia-fabricmanager",)),
    Case("V1", {"stack": {"driver": None, "fabricmanager": None}, "hardware": None}),
    Case("V1", {"stack": {"driver": None}, "families": {"gpu": {
        "version": "580.105.08", "packages": ["nvidia-open-580"]}}}),
    # a branch is no version
    Case("V1", {"stack": driver("580")}, UNKNOWN, ("580 is no whole version",)),
    Case("V1", {"stack": {"fabricmanager": {"version": "580"}}}, UNKNOWN, ("580 is no whole version",)),
    Case("V1", {"stack": {"nccl": {"version": "2.28"}}}, UNKNOWN, ("2.28 is no whole version",)),
    Case("V1", {"stack": {"container_toolkit": {"version": "1.17"}}}, UNKNOWN, ("1.17 is no whole version",)),
    Case("V1", {"stack": driver("9" * 5000)}, UNKNOWN),
    Case("MVC2", {"stack": driver("580")}),
    Case("CT2", {"stack": {"container_toolkit": {"version": "1.17"}}}),
    Case("V2", {"families": {"more": {"version": "580.95.05", "packages": ["nvidia-utils-580"]}}}, FAIL,
         ("580.95.05", "580.105.08")),
    Case("V2", {"families": {"more": {"version": "580.105.08-0ubuntu1", "packages": ["nvidia-utils-580"]}}}),
    Case("V2", {"stack": {"driver": {"versions": {"nvidia-dkms-580-open": "580.95.05"}}}}, FAIL, ("580.95.05",)),
    Case("V2", {"base": {"packages": ["nvidia-utils-580"]}}, FAIL, ("580.95.05",),
         locked={"nvidia-utils-580": ("580.95.05-0ubuntu1", None, "base")}),
    Case("CT1", moved("container_toolkit", "nvidia-container-toolkit", "1.17.7"), FAIL, ("enroot",)),
    Case("CT1", {"stack": {"container_toolkit": {"versions": {"nvidia-container-toolkit": "1.17.7"}}}}, FAIL),
    Case("CT1", based("container_toolkit", "nvidia-container-toolkit"), FAIL,
         locked={"nvidia-container-toolkit": ("1.17.7-1", None, "cuda")}),
    Case("CT2", moved("container_toolkit", "nvidia-container-toolkit", "1.16.2"), WARN),
    Case("T1", moved("nccl", "libnccl2", "2.27.5"), WARN, ("2.27.5", "2.28.9")),
    Case("T1", moved("nccl", "libnccl2", "2.28.9")),
    Case("T1", {"stack": {"nccl": {"versions": {"libnccl2": "2.27.5"}}}}, WARN, ("2.27.5",)),
    Case("MVC1", moved("driver", "nvidia-open-570", "570.172.08"), FAIL, ("570.172.08",)),
    Case("MVC1", moved("cuda", "cuda-toolkit-13-0", "13.0.2")),
    Case("MVC2", moved("cuda", "cuda-toolkit-13-1", "13.1.0"), WARN, ("590.44.01",)),
    Case("MVC2", based("cuda", "cuda-toolkit-13-1"), WARN, ("590.44.01",)),
    Case("FM1", moved("fabricmanager", "nvidia-fabricmanager", "580.95.05"), FAIL, ("580.95.05", "580.105.08")),
    Case("FM1", moved("fabricmanager", "nvidia-fabricmanager", "580.105.08")),
    Case("FM1", {"stack": {"fabricmanager": {"versions": {"nvidia-fabricmanager": "580.95.05"}}}}, FAIL,
         ("580.95.05", "580.105.08")),
    Case("FM1", {"stack": {"fabricmanager": {"version": "580.95.05",
                                             "versions": {"nvidia-fabricmanager": "580.105.08"}}}}),
    # both, one of them wrong
    Case("FM1", {"families": {"fm": {"version": "580.95.05", "packages": ["cuda-drivers-fabricmanager"]}}}, FAIL),
    Case("FM1", based("fabricmanager", "nvidia-fabricmanager"), FAIL, ("580.95.05",),
         locked={"nvidia-fabricmanager": ("580.95.05-1", None, "cuda")}),
    Case("FM1", based("fabricmanager", "nvidia-fabricmanager"), locked={}),
    Case("FM1", {"stack": {"driver": None}, "families": {"gpu": {
        "version": "580.95.05", "packages": ["nvidia-open-580"]}}}, FAIL, ("580.95.05", "580.105.08")),
    Case("FM2", moved("fabricmanager", "nvidia-fabricmanager", "580.105.08")),
    Case("FM2", based("fabricmanager", "nvidia-fabricmanager")),
    Case("FM2", {"stack": {"fabricmanager": {"packages": ["bash"]}}}, UNKNOWN, ("bash",)),
    Case("FM2", {"stack": {"driver": None, "fabricmanager": None}, "families": {"gpu": {
        "version": "580.105.08", "packages": ["nvidia-open-580"]}}}, FAIL),
    Case("FM3", {**gpu("B200", "hgx"), **based("nvlsm", "nvlsm")}),
    Case("FM3", {**gpu("B200", "hgx"), **moved("nvlsm", "nvlsm", None)}),
    Case("FM3", {**gpu("B200", "hgx"), "stack": {"nvlsm": {"packages": ["bash"]}}}, UNKNOWN, ("bash",)),
    Case("FM4", {**gpu("GB200", "nvl72"), "stack": {"fabricmanager": None}, "families": {
        "mine": {"version": "580.95.05", "packages": ["nvidia-imex"]}}}, FAIL, ("580.95.05", "580.105.08")),
    Case("FM4", {**gpu("GB200", "nvl72"), "stack": {"fabricmanager": None}, "families": {
        "mine": {"version": "580.105.08", "packages": ["nvidia-imex"]}}}),
    Case("FM5", moved("fabricmanager", "nvidia-fabricmanager-535", "580.105.08"), FAIL, ("535",)),
    Case("FM5", {"stack": {"fabricmanager": {"packages": [f"nvidia-fabricmanager-{'9' * 5000}"]}}}, FAIL),
    Case("OK1", {**gpu("B200"), "stack": {"driver": None}, "families": {"gpu": {
        "version": "580.105.08", "packages": ["nvidia-utils-580"]}}}, UNKNOWN, ("doesn't say which",)),
    Case("O2", moved("fabricmanager", "nvidia-fabricmanager", "580.105.08", repository="doca"), WARN, ("doca", "cuda")),
    # driver and CUDA
    Case("MVC1", {"stack": driver("570.172.08")}, FAIL, ("570.172.08", "580", "CUDA 13.0.2")),
    Case("MVC1", {"stack": {**driver("525.60.13"), "cuda": {"version": "12.5.1"}}}),
    Case("MVC1", {"stack": {**driver("470.82.01"), "cuda": {"version": "12.5.1"}}}, FAIL, ("525.60.13",)),
    Case("MVC1", {"stack": {**driver("470.82.01"), "cuda": {
        "version": "12.5.1", "packages": ["cuda-toolkit-12-5", "cuda-compat-12-5"],
        "versions": {"cuda-compat-12-5": "555.42.06"}}}}),
    Case("MVC2", {"stack": {**driver("550.144.03"), "cuda": {"version": "12.5.1"}}}, WARN,
         ("550.144.03", "555.42.06", "12.5.1", "JIT", "NVLS")),
    # a name alone says the minor release
    Case("MVC2", {"stack": {**driver("550.144.03"), "cuda": {"version": None, "packages": ["cuda-toolkit-12-5"]}}},
         WARN, ("555.42.02",)),
    # numbers, not letters: 550.54.14 is before 550.144.03
    Case("MVC2", {"stack": {**driver("550.144.03"), "cuda": {"version": "12.4.1"}}}),
    Case("MVC2", {"stack": {**driver("550.54.14"), "cuda": {"version": "12.4.1"}}}, WARN, ("550.54.15",)),
    # Debian's runtime, by its own word and by the table
    Case("MVC2", {"stack": {**driver("550.54.14"), "cuda": {"version": "12.4.127", "packages": ["libcudart12"]}}}, WARN,
         ("CUDA 12.4.1",)),
    Case("MVC2", {"stack": {**driver("550.54.14"), "cuda": {
        "version": "12.4.99~12.4.0", "packages": ["libcudart12"]}}}),
    Case("MVC2", {"stack": {"cuda": {"version": "13.5.0"}}}, UNKNOWN, ("13.5.0", "isn't known")),
    Case("MVC2", {"stack": {"cuda": {"version": "14.0.1"}}}, UNKNOWN),
    # an update that isn't known needs no less than the last one that is
    Case("MVC2", {"stack": {"cuda": {"version": "13.0.3"}}}),
    Case("MVC2", {"stack": driver("580.82.07")}, WARN, ("580.95.05",)),
    Case("MVC2", {"stack": driver("580.82.07")}, WARN, ("580.82.07",), locked={
        "libnvidia-compute-580": ("580.82.07-0ubuntu1", "driver", "cuda"),
        "nvidia-dkms-580-open": ("580.82.07-0ubuntu1", "driver", "cuda")}),
    Case("MVC3", {**gpu("RTX4090"), "stack": {"cuda": {"packages": ["cuda-toolkit-13-0", "cuda-compat-13-0"]}}},
         FAIL, ("cuda-compat-13-0", "RTX4090")),
    Case("MVC3", {"hardware": None, "stack": {"cuda": {"packages": ["cuda-toolkit-13-0", "cuda-compat-13-0"]}}},
         UNKNOWN),
    Case("MVC3", {"stack": {"cuda": {"packages": ["cuda-toolkit-13-0", "cuda-compat-13-0"]}}}),
    # PyTorch
    Case("T1", torch("torch==2.12.0"), WARN, ("2.29.7", "2.28.9", "RPATH", "nccl-tests")),
    Case("T1", torch("torch==2.11.0")),
    Case("T1", torch("torch==2.12"), WARN, ("2.29.7",)),
    Case("T1", {"stack": {"nccl": None}, **torch("torch==2.12.0")}),
    Case("T1", {}, WARN, ("2.27.5", "2.28.9"), wheels=("torch 2.11.0", "nvidia-nccl-cu13 2.27.5")),
    Case("T1", {}, wheels=("torch 2.11.0", "nvidia-nccl-cu13 2.28.9", "nvidia-cuda-runtime 13.0.96")),
    Case("T2", {}, FAIL, ("nvidia-nccl-cu12 2.21.5", "nvidia-nccl-cu13 2.28.9"),
         wheels=("torch 2.11.0", "nvidia-nccl-cu13 2.28.9", "nvidia-nccl-cu12 2.21.5")),
    Case("T2", torch("torch==2.11.0", "nvidia-nccl-cu12==2.21.5", "NVIDIA_NCCL.cu11"), FAIL),
    Case("T2", {}, wheels=("torch 2.11.0", "nvidia-nccl-cu13 2.28.9")),
    Case("T3", {"stack": {**driver("570.172.08"), "cuda": {"version": "12.8.1"}}}, FAIL,
         ("torch 2.11.0", "570.172.08", "580")),
    Case("T3", {"stack": {**driver("570.172.08"), "cuda": {"version": "12.8.1"}}, **torch("torch==2.9.1")}),
    Case("T3", torch("torch == 2.9.1+cu130")),
    Case("T3", {"stack": {**driver("570.172.08"), "cuda": {"version": "12.8.1"}}, **torch("torch==2.9.1+cu130")}, FAIL,
         ("CUDA 13.0",)),
    Case("T5", torch("torch>=2.5"), UNKNOWN, ("(not pinned)",)),
    Case("T5", torch("torch==9.9.9"), UNKNOWN, ("torch 9.9.9",)),
    # the default build's NCCL needn't be that of another one
    Case("T5", torch("torch==2.11.0", index="https://example.org/whl/cu126"), UNKNOWN, ("NCCL",)),
    Case("T5", torch("torch==2.11.0", index="https://example.org/whl/cu130")),
    Case("T5", torch("numpy==2.1.0", "torchvision>=0.1")),
    Case("T5", torch("torch>=2.5"), wheels=("torch 2.11.0", "nvidia-nccl-cu13 2.28.9")),
    # fabric
    Case("FM1", {"stack": {"fabricmanager": {"version": "580.126.20"}}}, FAIL, ("580.126.20", "580.105.08")),
    Case("FM1", {}, FAIL, ("580.105.09", "580.105.08"),
         locked={"nvidia-fabricmanager": ("580.105.09-1", "fabricmanager", "cuda")}),
    Case("FM1", {"stack": {"fabricmanager": {"version": "580.105.08-1"}}}),
    Case("FM2", {"stack": {"fabricmanager": None}}, FAIL, ("hgx", "no fabric manager")),
    Case("FM2", {"stack": {"fabricmanager": None, "driver": {"version": None}}}, FAIL),
    Case("FM2", {"hardware": {"platform": None}, "stack": {"fabricmanager": None}}, UNKNOWN, ("H200",)),
    Case("FM2", {"hardware": {"platform": "pcie"}, "stack": {"fabricmanager": None}}),
    Case("FM2", {"hardware": {"platform": None, "gpus": ["L40S"]}, "stack": {"fabricmanager": None}}),
    Case("FM3", gpu("B200", "hgx"), FAIL, ("B200", "no nvlsm")),
    Case("FM3", {**gpu("B200", "hgx"), "stack": {"nvlsm": {"packages": ["nvlsm"]}}}),
    Case("FM3", gpu("H200", "hgx")),
    Case("FM4", gpu("GB200", "nvl72"), FAIL, ("no nvidia-imex",)),
    Case("FM4", {**gpu("GB200", "nvl72"), "stack": {
        "fabricmanager": None, "imex": {"version": "580.105.07", "packages": ["nvidia-imex"]}}}, FAIL,
         ("580.105.07", "580.105.08")),
    Case("FM4", {**gpu("GB200", "nvl72"), "stack": {
        "imex": {"version": "580.105.08", "packages": ["nvidia-imex"]}}}, WARN, ("fabric manager",)),
    Case("FM4", {**gpu("GB200", "nvl72"), "stack": {
        "fabricmanager": None, "imex": {"version": "580.105.08", "packages": ["nvidia-imex"]}}}),
    Case("FM5", {"stack": {"fabricmanager": {"packages": ["nvidia-fabricmanager-535"]}}}, FAIL,
         ("nvidia-fabricmanager-535", "580.105.08")),
    Case("FM5", {"stack": {"fabricmanager": {"packages": ["nvidia-fabricmanager-580"]}}}),
    # GPUs
    Case("OK1", {**gpu("B200"), "stack": {"driver": {"flavor": "proprietary"}}}, FAIL, ("B200", "blackwell")),
    Case("OK1", {**gpu("GH200"), "stack": {"driver": {"flavor": "proprietary"}}}, FAIL),
    Case("OK1", {**gpu("B200"), "stack": {"driver": {"flavor": None}}}, UNKNOWN),
    Case("OK1", gpu("B200")),
    Case("OK1", {**gpu("H100"), "stack": {"driver": {"flavor": "proprietary"}}}),
    Case("OK2", gpu("V100"), FAIL, ("V100", "volta")),
    Case("OK2", gpu("T4")),
    Case("OK2", {**gpu("V100"), "stack": {"driver": {"flavor": "proprietary"}}}),
    Case("OK5", {"stack": {"driver": {"packages": ["cuda-drivers-580"]}}}, FAIL, ("cuda-drivers-580", "proprietary")),
    Case("OK5", {"stack": {"driver": {"flavor": "proprietary"}}}, FAIL, ("nvidia-dkms-580-open",)),
    Case("OK5", {}, FAIL, locked={"nvidia-dkms-580": ("580.105.08-0ubuntu1", "driver", "cuda")}),
    Case("OK5", {"stack": {"driver": {"flavor": "proprietary", "packages": ["nvidia-dkms-580"]}}}),
    Case("OK5", {"stack": {"driver": {"flavor": None}}}),
    Case("OK5", {"stack": {"driver": {"packages": ["nvidia-driver", "nvidia-open-kernel-dkms"]}}}),
    Case("OK5", {"stack": {"driver": {"packages": ["nvidia-driver-580-server"]}}}, FAIL),
    Case("OK5", {"stack": {"driver": {"packages": [f"linux-modules-nvidia-580-server-{KERNEL}"]}}}, FAIL),
    Case("OK5", {"stack": {"driver": {"packages": [f"linux-modules-nvidia-580-server-open-{KERNEL}"]}}}),
    Case("GPU1", {**gpu("B200"), "stack": driver("570.124.06")}, FAIL, ("B200", "570.133.20", "570.124.06")),
    Case("GPU1", {**gpu("B200"), "stack": driver("570.133.20")}),
    # nobody has verified this one
    Case("GPU1", {**gpu("H200"), "stack": driver("525.147.05")}, WARN, ("H200", "535")),
    Case("GPU2", gpu("H300"), UNKNOWN, ("H300", "H100")),
    Case("GPU2", gpu("H100")),
    # kernel
    Case("K1", {"kernel": {"release": "6.17.0-1008-gcp", "packages": [
        "linux-image-6.17.0-1008-gcp", "linux-headers-6.17.0-1008-gcp"]}, "stack": driver("575.57.08")}, FAIL,
         ("575.57.08", "6.17.0-1008-gcp")),
    Case("K1", {"kernel": {"release": "7.0.0-1011-gcp"}, "stack": driver("590.48.01")}, WARN),
    Case("K1", {"kernel": {"release": "6.17.0-1008-gcp"}, "stack": driver("590.48.01")}),
    Case("K1", {"kernel": {"release": "6.14.0-1008-gcp"}, "stack": driver("575.57.08")}),
    # Debian's, by package: the proprietary module of that version wasn't tried
    Case("K1", {"kernel": DEBIAN, "stack": driver("550.163.01", "nvidia-open-kernel-dkms")}, FAIL,
         ("550.163.01", "6.12.117+deb13-amd64", "nv-pci.c:237")),
    Case("K1", {"kernel": DEBIAN, "stack": driver("550.163.01", "nvidia-kernel-dkms")}),
    Case("K1", {"kernel": DEBIAN, "stack": driver("550.163.02", "nvidia-open-kernel-dkms")}),
    Case("K1", {"kernel": DEBIAN, "stack": driver("550.163.01", "nvidia-open-kernel-dkms"), "dkms": {
        "patches": [{"module": "nvidia-current-open", "file": "pci.patch"}]}}),
    Case("K1", {"kernel": DEBIAN, "stack": driver("550.163.01", "nvidia-open-kernel-dkms"), "dkms": {
        "patches": [{"module": "hello", "file": "pci.patch"}]}}, FAIL),
    # a second kernel that the lock got boots just as well
    Case("K1", {"stack": driver("550.163.01", "nvidia-open-kernel-dkms")}, FAIL, ("6.12.117+deb13-cloud-amd64",),
         locked={"linux-image-6.12.117+deb13-cloud-amd64": ("6.12.117-1", "kernel", "base"),
                 "nvidia-open-kernel-dkms": ("550.163.01-2", "driver", "base"),
                 "libnvidia-compute-580": ("550.163.01-2", "driver", "base")}),
    Case("K3", {"kernel": {"packages": [f"linux-image-{KERNEL}"]}}, FAIL, (f"linux-headers-{KERNEL}", "dkms")),
    Case("K3", {"kernel": {"packages": [f"linux-image-{KERNEL}"]},
                "stack": {"driver": {"packages": ["nvidia-open-580"]}}}, FAIL),
    Case("K3", {"kernel": {"packages": [f"linux-image-{KERNEL}"]}, "stack": {
        "driver": {"packages": [f"linux-modules-nvidia-580-open-{KERNEL}"]}}}),
    # a second kernel that the lock got boots just as well
    Case("K3", {}, FAIL, ("6.8.0-91-generic",),
         locked={"linux-image-6.8.0-91-generic": ("6.8.0-91.92", None, "base")}),
    Case("K3", {}, locked={}),
    Case("K4", {"kernel": {"packages": [f"linux-image-{KERNEL}", "linux-headers-6.8.0-88-generic"]}}, FAIL,
         ("linux-headers-6.8.0-88-generic", KERNEL)),
    Case("K4", {"base": {"packages": ["python3", f"linux-headers-{KERNEL}"]},
                "kernel": {"packages": [f"linux-image-{KERNEL}"]}}, FAIL, (f"linux-headers-{KERNEL}", "isn't held")),
    Case("K4", {}, FAIL, locked={f"linux-modules-{KERNEL}": ("6.8.0-90.91", None, "base")}),
    Case("K4", {"kernel": {"release": "6.12.117+deb13-amd64", "packages": [
        "linux-image-6.12.117+deb13-amd64", "linux-headers-6.12.117+deb13-common"]}}),
    Case("K4", {}, locked={}),
    Case("K6", {"kernel": {"release": "6.8.0-88-generic"}}, FAIL, ("6.8.0-88-generic", f"linux-image-{KERNEL}")),
    Case("K6", {"kernel": {"packages": ["linux-image-amd64"]}}, UNKNOWN),
    Case("K6", {"kernel": None}, UNKNOWN, ("no kernel",)),
    Case("K6", {}, FAIL, ("6.8.0-88-generic",), locked={}, kernel="6.8.0-88-generic"),
    Case("K6", {"kernel": None, "stack": {"driver": {"flavor": None}}}),
    Case("K6", {}, locked={}),
    *(Case("K7", {"kernel": {"packages": [f"linux-image-{KERNEL}", name]}}, WARN, (name,)) for name in (
        "linux-generic", "linux-image-generic", "linux-headers-generic-hwe-24.04", "linux-image-amd64", "linux-gcp",
        "linux-headers-cloud-amd64", "linux-modules-extra-gcp", "linux-modules-nvidia-570-server-open-gcp",
        "linux-modules-nvidia-580-generic", "linux-nvidia-hwe-24.04")),
    *(Case("K7", {"kernel": {"packages": [f"linux-image-{KERNEL}", name]}}) for name in (
        "linux-headers-6.8.0-90", f"linux-modules-extra-{KERNEL}", "linux-headers-6.12.117+deb13-amd64",
        "linux-base", "linux-firmware", "linux-libc-dev", "linux-modules-nvidia-580-server-open-6.8.0-1032-gcp")),
    # repositories
    Case("D1", {"stack": {"rdma": {"repository": "doca"}}}, FAIL, ("doca",)),
    Case("D1", {"stack": {"rdma": {"provider": "doca"}}}, FAIL, ("the distribution",)),
    Case("D1", {"stack": {"rdma": {"provider": "doca", "repository": None}}}, FAIL),
    Case("D1", {"stack": {"rdma": {"packages": ["rdma-core", "doca-ofed"]}}}, FAIL, ("doca-ofed",)),
    Case("D1", {"base": {"packages": ["python3", "libibverbs1"]},
                "stack": {"rdma": {"provider": "doca", "repository": "doca", "packages": ["doca-ofed"]}}}, FAIL,
         ("libibverbs1", "outside")),
    Case("D1", {}, FAIL, ("rdma-core 50.0-2ubuntu0.2 of base", "libibverbs1 2510.0.0-1 of doca"),
         locked={"libibverbs1": ("2510.0.0-1", "rdma", "doca")}),
    Case("D1", {"stack": {"rdma": {"provider": "doca", "repository": "doca", "packages": ["rdma-core"]}}}),
    Case("D1", {"stack": {"rdma": {"repository": None}}}),
    Case("D1", {}, locked={}),
    Case("D2", {}, FAIL, ("dkms 3.2.0-1", "doca"), locked={"dkms": ("3.2.0-1", None, "doca")}),
    Case("D2", {"stack": {"rdma": {"provider": "doca", "repository": "doca", "packages": ["rdma-core"]}}}, FAIL,
         ("mft 4.35.0-1", "cuda"), locked={"mft": ("4.35.0-1", None, "cuda")}),
    Case("D2", {}, locked={"mft": ("4.35.0-1", None, "cuda")}),
    Case("O1", {}, FAIL, ("nvidia-fabricmanager 580.105.08-1 of cuda", "of base"),
         locked={"nvidia-fabricmanager-dev": ("580.105.08-1", "fabricmanager", "base")}),
    Case("O1", {}, locked={}),
    Case("O2", {"stack": {"fabricmanager": {"repository": "base"}}}, WARN, ("base", "cuda")),
    Case("O2", {}, WARN, ("base", "cuda"),
         locked={"nvidia-fabricmanager": ("580.105.08-0ubuntu1", "fabricmanager", "base")}),
    Case("O2", {"stack": {"fabricmanager": {"repository": None}}}),
    Case("A1", repository(uri="http://example.org/cuda"), FAIL, ("other and cuda",)),
    Case("A1", repository(suites=["/", "/"]), FAIL),
    Case("A1", repository(suites=["old/"], uri="https://example.org/cuda/")),
    Case("A2", repository(key={**KEY, "fingerprint": "AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80"}), FAIL,
         ("7fa2af80", "2022")),
    Case("A2", repository(key={**KEY, "url": "https://example.org/7fa2af80.pub"}), FAIL),
    Case("A2", repository()),
]  # fmt: skip


def run(case: Case, facts: Facts | None = None) -> dict[str, Severity]:
    lock = None
    if case.locked is not None or case.wheels:
        lock = lock_of({**LOCKED, **(case.locked or {})}, case.wheels, case.kernel)
    found = hits(case.change, lock, facts)
    mine = [one for one in found if one.rule.id == case.rule]
    if case.severity is not None:
        assert mine, f"nothing of {case.rule} in {[one.what for one in found]}"
        for words in case.says:
            assert any(words in one.what for one in mine), [one.what for one in mine]
    for one in found:
        assert one.what and one.remedy and one.rule.source
    return said(mine)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.severity.name if case.severity else 'ok'}")
def test_rule(case: Case) -> None:
    assert run(case).get(case.rule) == case.severity


def test_each_rule_has_a_case_and_its_opposite() -> None:
    for rule in RULES:
        mine = [case.severity for case in CASES if case.rule == rule.id]
        assert None in mine, f"{rule.id} isn't tried on something right"
        assert rule.severity in mine, f"{rule.id} isn't tried on something broken"


def test_the_remedy_names_the_package_of_the_drivers_branch() -> None:
    for version, package in (("550.144.03", "nvidia-fabricmanager-550 "), ("580.105.08", "nvidia-fabricmanager ")):
        change = {"stack": {**driver(version), "fabricmanager": None}}
        (one,) = (hit for hit in hits(change) if hit.rule.id == "FM2")
        assert package in one.remedy and version in one.remedy


def test_what_is_right_says_nothing() -> None:
    assert [one.what for one in hits({})] == []
    assert [one.what for one in hits({}, lock_of(LOCKED))] == []


def test_what_nobody_has_verified_never_fails() -> None:
    """Every broken thing again, with facts that are all hearsay: whatever rests on one may warn."""
    known = packaged_facts().model_dump(by_alias=True)
    for table in known.values():
        for entry in table.values() if isinstance(table, dict) else ():
            entry["verified"] = False
    hearsay = Facts.model_validate(known)
    resting = {"MVC1", "T3", "FM3", "OK1", "OK2", "GPU1", "CT1", "K1", "D1", "A2", "MVC3"}
    for case in CASES:
        if case.severity is Severity.FAIL and case.rule in resting:
            assert run(case, hearsay)[case.rule] is Severity.WARN, case


@settings(max_examples=150, deadline=None)
@given(*[st.from_regex(r"[0-9][A-Za-z0-9.+~:-]{0,8}", fullmatch=True)] * 3, st.text(min_size=1, max_size=8))
def test_whatever_a_version_is_it_is_judged(one: str, two: str, three: str, anything: str) -> None:
    change: Change = {
        "stack": {
            **driver(one), "cuda": {"version": two, "packages": ["cuda-toolkit", "libcudart12", "cuda-nvcc-12-5"]},
            "nccl": {"version": None, "versions": {"libnccl2": anything}}, "container_toolkit": {"version": three},
        },
        "python": {"train": {"requirements": [f"torch=={three}", f"nvidia-nccl-cu12=={two}"]}},
    }  # fmt: skip
    assert {hit.rule.id for hit in hits(change)} <= {rule.id for rule in RULES}


HUGE = "9" * 5000


@pytest.mark.parametrize(
    "change",
    [
        {"stack": driver(HUGE)}, {"stack": driver(f"580.{HUGE}.1")}, {"stack": {"cuda": {"version": HUGE}}},
        {"stack": {"cuda": {"version": f"12.4~{HUGE}.{HUGE}", "packages": ["libcudart12"]}}},
        {"stack": {"cuda": {"version": None, "packages": [f"cuda-toolkit-{HUGE}-1", f"cuda-compat-{HUGE}-{HUGE}"]}}},
        {"stack": {"nccl": {"version": f"2.{HUGE}.1"}}}, {"stack": {"container_toolkit": {"version": f"1.17.{HUGE}"}}},
        torch(f"torch=={HUGE}"), torch(f"torch==2.11.0+cu{HUGE}"), torch("torch==2.11.0", f"nvidia-nccl-cu13=={HUGE}"),
        torch("torch==2.11.0", index=f"https://example.org/cu{HUGE}"),
        {"kernel": {"release": f"6.{HUGE}.1", "packages": [f"linux-image-6.{HUGE}.1-generic"]}},
        {"stack": {"fabricmanager": {"packages": [f"nvidia-fabricmanager-{HUGE}"]}}},
        {"hardware": {"gpus": [f"H{HUGE}"]}},
    ],
    ids=range(14),
)  # fmt: skip
def test_a_number_of_any_length_is_judged(change: Change) -> None:
    """Python reads no number of more than 4300 digits."""
    hits(change)
    hits(change, lock_of(LOCKED))
    locked = {name: (f"{HUGE}.1.1-1", family, repository) for name, (_, family, repository) in LOCKED.items()}
    with contextlib.suppress(ValidationError):  # a lock may refuse it, which is as good
        hits({}, lock_of(locked, wheels=[f"torch {HUGE}", f"nvidia-nccl-cu13 {HUGE}"]))


def test_ids_are_as_they_are_written_elsewhere() -> None:
    for rule in RULES:
        assert re.fullmatch(r"[A-Z]+\d", rule.id) and rule.text and rule.source and rule.remedy
    assert len({rule.id for rule in RULES}) == len(RULES)
