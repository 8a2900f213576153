"""The CUDA packages as one held set."""

from __future__ import annotations

from collections.abc import Iterator

from goldsmith import Lock, Node, Resource


def desired(node: Node, lock: Lock) -> Iterator[Resource]:
    yield from lock.family("cuda")
