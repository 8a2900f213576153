"""What hygiene is made of: a view of the tree, what is expected of it, and rules over the two.

The tree is walked once, from outside, and no link in it is followed; the rules look at what the walk found and read the
few files that they need.
"""

from __future__ import annotations

import stat
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from goldsmith.credentials import short
from goldsmith.image.tree import Entry, Tree
from goldsmith.model.finding import Finding, Severity

# What is looked into: a configuration file, a script. Larger ones are data.
READ_LIMIT = 256 << 10
# The folders of /usr that have other names in the root folder; dpkg's lists have either.
_MERGED = ("/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/")


@dataclass(frozen=True)
class Expected:
    """image: its name. files: paths that roles promise. enabled: units that roles promise to be enabled. packages: of
    the lock. privileged: programs that image.yml names under hygiene. builder: words that only the machine that built
    it has, such as its name."""

    image: str
    files: Collection[str] = ()
    enabled: Collection[str] = ()
    packages: Collection[str] = ()
    privileged: Collection[str] = ()
    builder: tuple[str, ...] = ()


class View:
    """A tree as one walk found it. It must stay as it is meanwhile."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.entries: dict[str, Entry] = {one.path: one for one in tree.walk()}

    def read(self, path: str) -> str:
        """A plain file's text, empty if there is none, or it is larger than configuration is."""
        entry = self.entries.get(path)
        if entry is None or not is_file(entry) or entry.stat.st_size > READ_LIMIT:
            return ""
        return (self._tree.read(path, READ_LIMIT) or b"").decode(errors="replace")

    def lines(self, path: str, comments: str = "#") -> list[str]:
        """A file's lines without blanks around them, without empty ones and comments."""
        lines = (line.strip() for line in self.read(path).splitlines())
        return [line for line in lines if line and not line.startswith(tuple(comments))]

    def below(self, *folders: str) -> Iterator[Entry]:
        """All that lies below the folders, whether or not they are there."""
        for folder in folders:
            # 0 follows / : all below a folder is one range of the sorted paths
            first, last = (bisect_left(self._paths, f"{folder}{end}") for end in "/0")
            yield from (self.entries[path] for path in self._paths[first:last])

    @cached_property
    def _paths(self) -> list[str]:
        return sorted(self.entries)

    @cached_property
    def owners(self) -> Mapping[str, str]:
        """Path → the package that brought it, by dpkg's database; /usr's folders have their names below /usr."""
        owners = {}
        for entry in self.below("/var/lib/dpkg/info"):
            name, dot, kind = entry.path.rpartition("/")[2].rpartition(".")
            if not dot or kind != "list":
                continue
            package = name.partition(":")[0]
            # larger than configuration: a kernel's list has 10,000 lines
            for line in (self._tree.read(entry.path) or b"").decode(errors="replace").splitlines():
                owners[f"/usr{line}" if line.startswith(_MERGED) else line] = package
        return owners

    def names_of(self, file: str) -> Mapping[int, str]:
        """Number → name, of /etc/passwd or /etc/group; the first name of a number counts, as for libc."""
        found: dict[int, str] = {}
        for line in self.lines(file):
            fields = line.split(":")
            if len(fields) > 2 and fields[2].isascii() and fields[2].isdigit():
                found.setdefault(int(fields[2]), fields[0])
        return found


Look = Callable[[View, Expected], Iterator[tuple[str, str]]]


@dataclass(frozen=True)
class Rule:
    """id: stable, without `hygiene.`. text: what must hold, and why. remedy: what to do. look: yields (path, what is
    wrong with it); paths and texts come from the tree."""

    id: str
    text: str
    remedy: str
    look: Look = field(repr=False)

    @property
    def check(self) -> str:
        return f"hygiene.{self.id}"

    def findings(self, view: View, expected: Expected) -> list[Finding]:
        found = self.look(view, expected)
        return [finding(expected.image, self.check, path, actual, self.text, self.remedy) for path, actual in found]


def finding(image: str, check: str, path: str, actual: str, text: str, remedy: str) -> Finding:
    """path, actual: whatever a tree or a program in it says; nothing in them is a secret or obeyed by a terminal."""
    return Finding(
        node=f"images/{image}", check=check, severity=Severity.FAIL, fact=plain(path), expected=text,
        actual=plain(actual), remedy=remedy,
    )  # fmt: skip


def plain(text: str) -> str:
    """One line that can be printed: file names are bytes, of any kind."""
    return short(text.encode(errors="surrogateescape").decode(errors="backslashreplace"))


def is_file(entry: Entry) -> bool:
    return stat.S_ISREG(entry.stat.st_mode)


def is_folder(entry: Entry) -> bool:
    return stat.S_ISDIR(entry.stat.st_mode)


def is_link(entry: Entry) -> bool:
    return stat.S_ISLNK(entry.stat.st_mode)


def name_of(entry: Entry) -> str:
    return entry.path.rpartition("/")[2]
