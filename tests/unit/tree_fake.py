"""A fake of goldsmith.image.tree.Tree: a tree as data, so that a rule can be shown devices, owners and capabilities
without root. tests/unit/test_image_hygiene_tree.py has real ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from goldsmith.image.tree import Entry


@dataclass(frozen=True)
class Node:
    """mode: with its type. owner, group: numbers."""

    content: str = ""
    mode: int = stat.S_IFREG | 0o644
    link: str = ""
    owner: int = 0
    group: int = 0
    capabilities: bytes = b""


FOLDER = Node(mode=stat.S_IFDIR | 0o755)


def file(content: str = "x", mode: int = 0o644, owner: int = 0, group: int = 0, capabilities: bytes = b"") -> Node:
    return Node(content, stat.S_IFREG | mode, "", owner, group, capabilities)


def folder(mode: int) -> Node:
    return Node(mode=stat.S_IFDIR | mode)


def link(target: str) -> Node:
    return Node(mode=stat.S_IFLNK | 0o777, link=target)


def device(kind: int = stat.S_IFCHR) -> Node:
    return Node(mode=kind | 0o600)


class FakeTree:
    """Path → what is there, a text for a plain file; the folders above it come by themselves."""

    def __init__(self, files: Mapping[str, str | Node]) -> None:
        self.nodes: dict[str, Node] = {}
        for path, one in files.items():
            above = path.split("/")[1:-1]
            for number in range(len(above)):
                self.nodes.setdefault("/" + "/".join(above[: number + 1]), FOLDER)
            self.nodes[path] = one if isinstance(one, Node) else file(one)

    def walk(self) -> Iterator[Entry]:
        for path, one in sorted(self.nodes.items()):
            numbers = (one.mode, 1, 1, 1, one.owner, one.group, len(one.content.encode() or one.link), 0, 0, 0)
            yield Entry(path, os.stat_result(numbers, {"st_rdev": 0}), one.link, one.capabilities)

    def read(self, path: str, limit: int = 64 << 20) -> bytes | None:
        one = self.nodes.get(path)
        return one.content.encode()[:limit] if one and stat.S_ISREG(one.mode) else None
