"""Which packages stay when an image is locked anew, and why each is there."""

from __future__ import annotations

from goldsmith.lock.depends import names, needed_by
from goldsmith.lock.index import Candidate, Index
from goldsmith.lock.keep import Keep, keeping
from tests.unit.make import lock as make_lock


def candidate(name: str, version: str = "1", source: str = "", depends: str = "", provides: str = "") -> Candidate:
    return Candidate(name, version, "amd64", source or name, version, "", 1, "0" * 64, False, provides, "trixie",
                     "Debian:13.2/stable", depends=depends)  # fmt: skip


INDEX = Index([
    candidate("libc6", "2.41", "glibc"), candidate("libc-bin", "2.41", "glibc"), candidate("mawk", "1.3"),
    candidate("libnew", "3"),
])  # fmt: skip


def test_what_is_asked_for_moves_with_its_source() -> None:
    lock = make_lock({
        "libnccl2": ("2.21", "nccl", "nccl"), "libnccl-dev": ("2.21", "nccl", "nccl"), "mawk": ("1.3", "mawk", None),
        "libc6": ("2.40", "glibc", None), "libc-bin": ("2.40", "glibc", None),
    })  # fmt: skip
    assert set(keeping(lock, ()).versions) == set(lock.packages)
    assert set(keeping(lock, ["nccl"]).versions) == {"mawk", "libc6", "libc-bin"}
    assert set(keeping(lock, ["libc6"]).versions) == {"libnccl2", "libnccl-dev", "mawk"}


def test_what_is_gone_moves() -> None:
    assert Keep({"mawk": "1.3", "libc6": "2.40", "nobody": "1"}).offered(INDEX).versions == {"mawk": "1.3"}


def test_what_stands_in_the_way_moves_with_its_source() -> None:
    keep = Keep({"libc6": "2.41", "libc-bin": "2.41", "mawk": "1.3"})
    reason = "can't be installed together:\n   libnew : Depends: libc6 (>= 2.42) but 2.41 is to be installed"
    assert keep.freed_by(reason, INDEX).versions == {"mawk": "1.3"}
    # nothing of it is kept: apt's reason is the answer then
    assert keep.freed_by("E: Unable to locate package x", INDEX) == keep


def test_why_a_package_is_there() -> None:
    packages = [
        candidate("aa", depends="cc (>= 1), virtual | xx"), candidate("bb", depends="cc, dd:any"), candidate("cc"),
        candidate("dd", depends="ee"), candidate("ee", depends="aa"), candidate("real", provides="virtual (= 2)"),
        candidate("odd"),
    ]  # fmt: skip
    found = needed_by({one.name: one for one in packages}, ["aa", "bb"])
    assert {name: found[name] for name in ("cc", "dd", "ee", "real", "odd")} == {
        "cc": "aa", "dd": "bb", "ee": "dd", "real": "aa", "odd": "apt's own choice",
    }  # fmt: skip


def test_the_names_of_a_dependency_field() -> None:
    found = names("aa (>= 1:2), bb | cc:any, ${x}, libstdc++6 [amd64]")
    assert found == ["aa", "bb", "cc", "libstdc++6"]
