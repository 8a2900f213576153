"""What the linter's tests stand on: an image that is right in everything, and one change to it."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from goldsmith.lint.engine import severity_of
from goldsmith.lint.facts import Facts, packaged_facts
from goldsmith.lint.rules import TOPICS
from goldsmith.lint.subject import Subject
from goldsmith.model.finding import Severity, worst
from goldsmith.model.image import Image
from goldsmith.model.lock import Lock
from goldsmith.model.rule import Hit
from tests.unit.make import lock as make_lock

Change = dict[str, Any]
# name → version, family, repository
Packages = dict[str, tuple[str, str | None, str]]
KEY = {"fingerprint": "EB693B3035CD5710E231E123A4B469963BF863CC", "url": "https://example.org/key"}
KERNEL = "6.8.0-90-generic"
GOOD: Change = {
    "schema": 1,
    "name": "good",
    "base": {"distribution": "ubuntu", "release": "noble", "suites": ["noble"], "packages": ["python3"]},
    "hardware": {"gpus": ["H200"], "platform": "hgx"},
    "repositories": {
        "cuda": {"uri": "https://example.org/cuda/", "suites": ["/"], "key": KEY},
        "doca": {"uri": "https://example.org/doca/", "suites": ["/"], "key": KEY},
    },
    "kernel": {"release": KERNEL, "packages": [f"linux-image-{KERNEL}", f"linux-headers-{KERNEL}"]},
    "stack": {
        "driver": {"version": "580.105.08", "flavor": "open", "repository": "cuda",
                   "packages": ["libnvidia-compute-580", "nvidia-dkms-580-open"]},
        "fabricmanager": {"version": "580.105.08", "repository": "cuda", "packages": ["nvidia-fabricmanager"]},
        "cuda": {"version": "13.0.2", "packages": ["cuda-toolkit-13-0"]},
        "nccl": {"version": "2.28.9", "packages": ["libnccl2"]},
        "rdma": {"packages": ["rdma-core", "libibverbs1"], "repository": "base"},
        "container_toolkit": {"version": "1.18.2", "packages": ["nvidia-container-toolkit"]},
    },
    "python": {"train": {"python": "3.12", "requirements": ["torch==2.11.0"]}},
    "roles": ["base", "nvidia_driver", "nccl"],
}  # fmt: skip
# What the lock of GOOD has of it.
LOCKED: Packages = {
    f"linux-image-{KERNEL}": ("6.8.0-90.91", "kernel", "base"),
    f"linux-headers-{KERNEL}": ("6.8.0-90.91", "kernel", "base"),
    "linux-headers-6.8.0-90": ("6.8.0-90.91", "kernel", "base"),
    "libnvidia-compute-580": ("580.105.08-0ubuntu1", "driver", "cuda"),
    "nvidia-dkms-580-open": ("580.105.08-0ubuntu1", "driver", "cuda"),
    "nvidia-fabricmanager": ("580.105.08-1", "fabricmanager", "cuda"),
    "cuda-toolkit-13-0": ("13.0.2-1", "cuda", "cuda"),
    "libnccl2": ("2.28.9-1+cuda13.0", "nccl", "cuda"),
    "rdma-core": ("50.0-2ubuntu0.2", "rdma", "base"),
    "libibverbs1": ("50.0-2ubuntu0.2", "rdma", "base"),
    "nvidia-container-toolkit": ("1.18.2-1", "container_toolkit", "cuda"),
    "dkms": ("3.0.11-1ubuntu13", None, "base"),
}


def over(lower: Any, upper: Any) -> Any:
    """A change laid over, as `extends` does it; None takes out."""
    if not (isinstance(lower, dict) and isinstance(upper, dict)):
        return upper
    merged = {**lower, **{key: over(lower.get(key), value) for key, value in upper.items()}}
    return {key: value for key, value in merged.items() if value is not None}


def image_of(change: Change) -> Image:
    return Image.model_validate(over(deepcopy(GOOD), change))


def lock_of(packages: Packages, wheels: Iterable[str] = (), kernel: str | None = KERNEL) -> Lock:
    """wheels: `name version`, of the environment train."""
    made = make_lock({name: (version, name, family) for name, (version, family, _) in packages.items()})
    told = made.model_dump(by_alias=True)
    for name, (_, _, repository) in packages.items():
        told["packages"][name]["repository"] = repository
        told["repositories"][repository] = {"releases": {}}
    pairs = [one.split() for one in wheels]
    told["kernel"] = kernel
    told["environments"] = {
        "train": {
            "python": "3.12", "platform": "manylinux_2_39_x86_64",
            "wheels": {
                name: {"name": name, "version": version, "filename": f"{name}-{version}-py3-none-any.whl",
                       "sha256": "0" * 64, "size": 1, "why": "required"}
                for name, version in pairs
            },
        }
    } if pairs else {}  # fmt: skip
    return Lock.model_validate(told)


def hits(change: Change, lock: Lock | None = None, facts: Facts | None = None) -> list[Hit]:
    """All that the engine's rules say of GOOD with a change."""
    subject = Subject(image_of(change), lock, facts or packaged_facts())
    return [hit for topic in TOPICS for hit in topic.lint(subject)]


def said(found: Iterable[Hit]) -> dict[str, Severity]:
    """Rule → the worst severity that is told of it."""
    told: dict[str, list[Severity]] = {}
    for hit in found:
        told.setdefault(hit.rule.id, []).append(severity_of(hit))
    return {rule: worst(severities) for rule, severities in told.items()}
