"""The PyTorch packages as one held set: another PyTorch on three nodes of sixteen gives silently wrong gradients."""

from __future__ import annotations

from collections.abc import Iterator

from goldsmith import Lock, Node, Resource


def desired(node: Node, lock: Lock) -> Iterator[Resource]:
    yield from lock.family("pytorch")
