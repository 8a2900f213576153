"""The image's Python environments, or those of them that the node is to have."""

from __future__ import annotations

from collections.abc import Iterator

from goldsmith import GoldsmithError, Lock, Node, Resource


def desired(node: Node, lock: Lock) -> Iterator[Resource]:
    environments = {one.name: one for one in lock.python_environments()}
    only = node["python_environments_only"]
    if unknown := sorted(set(only) - set(environments)):
        raise GoldsmithError(
            f"python_environments_only names {', '.join(unknown)}, which the image's lock hasn't got",
            hint=f"it has {', '.join(environments) or 'none'}: they stand under `python` in image.yml",
        )
    yield from (one for name, one in environments.items() if not only or name in only)
