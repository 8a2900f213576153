"""The NCCL packages as one held set, and /etc/nccl.conf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from goldsmith import MANAGED, File, GoldsmithError, Lock, Node, Resource

from .rules import NEED_REASON, problems


def desired(node: Node, lock: Lock) -> Iterator[Resource]:
    yield from lock.family("nccl", verify=True)
    yield File("/etc/nccl.conf", nccl_conf(node["nccl_config"], node["nccl_config_reasons"]))


def nccl_conf(config: Mapping[str, Any], reasons: Mapping[str, str]) -> str:
    """The file's text, sorted. Raises GoldsmithError for what NCCL would silently misread."""
    lines = []
    for key, raw in sorted(config.items()):
        value = str(int(raw)) if isinstance(raw, bool) else str(raw)
        for problem in problems(key, value):
            raise GoldsmithError(
                f"nccl_config: {key}={value}: {problem}", hint="/etc/nccl.conf takes KEY=VALUE, literally"
            )
        reason = " ".join(str(reasons.get(key, "")).split())
        if key in NEED_REASON and not reason:
            raise GoldsmithError(
                f"nccl_config sets {key} for the whole node: {NEED_REASON[key]}",
                hint=f"leave it out, or say why: nccl_config_reasons: {{{key}: …}}",
            )
        if reason:
            # an old parser reads comments too: without a `=` it skips them
            lines.append(f"# {key}: {reason.replace('=', ' ')}\n")
        lines.append(f"{key}={value}\n")
    return MANAGED.format(role="nccl") + "".join(lines)
