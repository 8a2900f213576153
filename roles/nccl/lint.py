"""NCCL's settings in an image's variables: what is misread, what breaks jobs later, what belongs into one job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from goldsmith import Hit, Image, Lock, Rule, Severity, upstream

from .rules import DEBUGGING, FIXED, NEED_REASON, QUIET, problems, trapped

MISREAD = Rule(
    "NC1", Severity.FAIL, "/etc/nccl.conf says what NCCL reads: KEY=VALUE, literally",
    "NCCL's parser, param.cc; roles/nccl/rules.py", "correct nccl_config: NCCL itself never complains",
)  # fmt: skip
REASON = Rule(
    "NC2", Severity.FAIL, "NCCL_ALGO and NCCL_PROTO aren't set for a whole node without a reason",
    "NCCL user guide, environment variables", "leave it out, or say why in nccl_config_reasons",
)  # fmt: skip
DEBUG = Rule(
    "NC3", Severity.WARN, "what is for debugging one job isn't set for a whole node",
    "NCCL user guide, environment variables, debugging", "set it in the job's environment; or say why it is needed on "
    "every node in nccl_config_reasons",
)  # fmt: skip
PREFIX = Rule(
    "NC4", Severity.WARN, "a name in NCCL_IB_HCA is one adapter's, not the beginning of several",
    "NVIDIA-NeMo/nemo-platform#922; NCCL user guide, NCCL_IB_HCA", "begin the value with `=`, for exact names",
)  # fmt: skip
FORCED = Rule(
    "NC5", Severity.WARN, "NCCL decides by the node's topology where it uses GPUDirect RDMA",
    "NCCL user guide, NCCL_NET_GDR_LEVEL", "leave it out, or say in nccl_config_reasons what was measured",
)  # fmt: skip
GID = Rule(
    "Q3", Severity.WARN, "no fixed GID index with NCCL 2.21 or later, which finds the right one on each adapter",
    "NVIDIA/nccl#1333, #2157", "leave NCCL_IB_GID_INDEX out: indexes move after a link flap, and the job hangs",
)  # fmt: skip
RULES = (MISREAD, REASON, DEBUG, PREFIX, FORCED, GID)


def lint(image: Image, lock: Lock | None) -> Iterator[Hit]:
    config = image.variables.get("nccl_config") or {}
    reasons = image.variables.get("nccl_config_reasons") or {}
    for name, value in (("nccl_config", config), ("nccl_config_reasons", reasons)):
        if not isinstance(value, dict):
            yield MISREAD.hit(f"{name} is {value!r}, not a mapping of NCCL_… to values", "variables", name)
            return
    for raw_key, raw in config.items():
        key, value = str(raw_key), str(int(raw)) if isinstance(raw, bool) else "" if raw is None else str(raw)
        field = ("variables", "nccl_config", key)
        for problem in problems(key, value):
            yield MISREAD.hit(f"{key}={value}: {problem}", *field)
        reason = str(reasons.get(key) or "").strip()
        if not reason:
            yield from _unreasoned(key, value, field)
        if key == "NCCL_IB_HCA":
            for one in trapped(value):
                yield PREFIX.hit(f"{key}={value}: {one} also matches {one}0 to {one}9, and what else begins so", *field)
        if key == "NCCL_IB_GID_INDEX":
            yield from _gid(image, lock, value, field)


def _unreasoned(key: str, value: str, field: tuple[str, ...]) -> Iterator[Hit]:
    if key in NEED_REASON:
        yield REASON.hit(f"{key}={value} for the whole node: {NEED_REASON[key]}", *field)
    elif key in FIXED:
        yield FORCED.hit(f"{key}={value} for the whole node: {FIXED[key]}", *field)
    elif DEBUGGING.match(key) and (key, value.upper()) not in QUIET:
        yield DEBUG.hit(f"{key}={value} for the whole node", *field)


def _gid(image: Image, lock: Lock | None, value: str, field: tuple[str, ...]) -> Iterator[Hit]:
    version = _version(image, lock)
    if version is None:
        yield GID.hit(
            f"NCCL_IB_GID_INDEX={value}, and which NCCL the image gets isn't known", *field,
            severity=Severity.UNKNOWN, remedy="set stack.nccl.version, or lock the image",
        )  # fmt: skip
    elif tuple(int(part) for part in version.split(".")) >= (2, 21):
        yield GID.hit(f"NCCL_IB_GID_INDEX={value} is fixed, and the image has NCCL {version}", *field)


def _version(image: Image, lock: Lock | None) -> str | None:
    """The image's NCCL, as NCCL counts: 2.21.5."""
    family = image.stack.nccl
    pins = [family.pin(name) for name in family.packages] if family else []
    locked = [package.version for package in lock.family("nccl")] if lock else []
    for text in (*locked, *(pin for pin in pins if pin)):
        if match := re.match(r"\d+\.\d+(\.\d+)?", upstream(text)):
            return match.group()
    return None
