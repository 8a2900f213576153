"""Pins, roots and families, with an apt that only records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.lock.apt import Inst
from goldsmith.lock.index import Candidate, Index, Release, read_packages
from goldsmith.lock.resolve import pin_families, resolve, root_reasons
from goldsmith.model.image import Image, read_placed
from goldsmith.role import Role
from goldsmith.yamlfile import Places

DATA = Path(__file__).parents[1] / "data/apt"
STABLE = Release("trixie", "Debian:13.8/stable", datetime(2026, 11, 21, tzinfo=UTC), "0" * 64)
TEXT = """\
schema: 1
name: x
base:
  distribution: debian
  release: trixie
  suites: [trixie]
  packages: [mawk]
stack:
  nccl:
    version: 2.22.3
    packages: [libnccl2]
  driver:
    version: 550.163.01
    packages: [libcuda1, nvidia-persistenced]
families:
  free:
    packages: [libcap2]
roles: []
"""


class Recorder:
    """An apt that installs what it is asked for, and what `needed` says beside."""

    def __init__(self, index: Index, needed: Iterable[str] = ()) -> None:
        self.index, self.needed = index, needed
        self.pinned: Mapping[str, str] = {}
        self.wanted: list[str] = []

    def pin(self, versions: Mapping[str, str]) -> None:
        self.pinned = versions

    def simulate(self, wanted: Iterable[str]) -> list[Inst]:
        self.wanted = sorted(wanted)
        names = [*(one.partition("=")[0] for one in self.wanted if one != "apt"), *self.needed]
        return [Inst(name, self.index.versions(name)[0].version, STABLE.origin, "amd64") for name in names]


def candidate(name: str, version: str, source: str, source_version: str) -> Candidate:
    return Candidate(
        name, version, "amd64", source, source_version, "", 1, "0" * 64, False, "", "trixie", STABLE.origin
    )


def index(*more: Candidate) -> Index:
    apt = candidate("apt", "3.0.4", "apt", "3.0.4")
    return Index([*read_packages((DATA / "packages.txt").read_text(), STABLE), apt, *more])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x").mkdir()
    return tmp_path / "x"


def define(folder: Path, text: str = TEXT) -> tuple[Image, Places]:
    (folder / "image.yml").write_text(text)
    return read_placed(folder)


def role(name: str, *packages: str) -> Role:
    return Role(name, Path("/project/roles") / name, "a promise", packages)


def test_roots_and_why_they_are_there(folder: Path) -> None:
    image, places = define(folder)
    reasons = root_reasons(index(), image, [role("base", "mawk", "libcudart12")], places)
    assert reasons == {
        "mawk": "base", "libnccl2": "family nccl", "libcuda1": "family driver",
        "nvidia-persistenced": "family driver", "libcap2": "family free",
        "libcudart12": "role base", "bash": "base", "apt": "base",
    }  # fmt: skip


def test_pins_become_exact_and_take_their_siblings_along(folder: Path) -> None:
    siblings = [
        candidate("libnvidia-x", "550.163.01-2", "nvidia-graphics-drivers", "550.163.01-2"),
        candidate("libnvidia-x", "570.1-1", "nvidia-graphics-drivers", "570.1-1"),
        candidate("libcuda1", "570.1-1", "nvidia-graphics-drivers", "570.1-1"),
        candidate("libcuda1", "550.163.01-1", "nvidia-graphics-drivers", "550.163.01-1"),
    ]
    image, places = define(folder)
    pins = pin_families(image, index(*siblings), places)
    assert pins.exact == {
        "libnccl2": "2.22.3-1-1", "libcuda1": "550.163.01-2", "nvidia-persistenced": "550.163.01-1",
    }  # fmt: skip
    assert pins.siblings["libnvidia-x"] == "550.163.01-2"
    assert "libcap2" not in pins.all


def test_resolving_asks_apt_for_exact_versions(folder: Path) -> None:
    image, places = define(folder)
    apt: Any = Recorder(index(), needed=["libtorch2.6"])
    chosen = resolve(apt, apt.index, image, [], places)
    assert apt.wanted == ["apt", "bash", "libcap2", "libcuda1=550.163.01-2", "libnccl2=2.22.3-1-1", "mawk",
                          "nvidia-persistenced=550.163.01-1"]  # fmt: skip
    assert apt.pinned["libnccl2"] == "2.22.3-1-1"
    assert (chosen["libtorch2.6"].why, chosen["libtorch2.6"].family) == ("needed by apt's own choice", None)
    assert chosen["libcuda1"].family == "driver" and chosen["bash"].family is None


@pytest.mark.parametrize(
    ("old", "new", "where", "what", "hint"),
    [
        ("2.22.3", "2.23.4", ":10, stack.nccl.version", "no repository has libnccl2 at 2.23.4",
         "2.22.3-1-1 (Debian:13.8/stable)"),
        ("[libnccl2]", "[libncl2]", ":11, stack.nccl.packages.0", "no repository has a package libncl2", "libnccl2"),
        ("[mawk]", "[mawk, awk]", ":7, base.packages.1", "awk is a virtual package", "mawk"),
        ("[mawk]", "[qqqq]", ":7, base.packages.0", "no repository has", "base.components"),
        ("[libcap2]", "[libnccl2]", ":17, families.free.packages.0", "is in family nccl already", "one family"),
        ("    packages: [libnccl2]", "    packages: [libnccl2]\n    versions: {libnccl2: 9.9.9}",
         ":12, stack.nccl.versions.libnccl2", "libnccl2 at 9.9.9", "it is there at"),
    ],
)  # fmt: skip
def test_errors_name_file_line_field_and_remedy(
    folder: Path, old: str, new: str, where: str, what: str, hint: str
) -> None:
    image, places = define(folder, TEXT.replace(old, new))
    apt: Any = Recorder(index())
    with pytest.raises(GoldsmithError) as caught:
        resolve(apt, apt.index, image, [], places)
    assert caught.value.where == f"{folder}/image.yml{where}"
    assert what in caught.value.what and hint in caught.value.hint


def test_a_roles_unknown_package_names_the_role(folder: Path) -> None:
    image, places = define(folder)
    with pytest.raises(GoldsmithError) as caught:
        root_reasons(index(), image, [role("extra", "libcudart13")], places)
    assert caught.value.where == "roles/extra/__init__.py, PACKAGES" and "libcudart12" in caught.value.hint


def test_apts_refusal_names_the_pins(folder: Path) -> None:
    image, places = define(folder)

    class Refusing(Recorder):
        def simulate(self, wanted: Iterable[str]) -> list[Inst]:
            raise GoldsmithError("can't be installed together:\n  a : Depends: b")

    apt: Any = Refusing(index())
    with pytest.raises(GoldsmithError, match="Depends: b") as caught:
        resolve(apt, apt.index, image, [], places)
    assert "driver 550.163.01, nccl 2.22.3" in caught.value.hint
    assert caught.value.where.endswith(":8, stack")


def test_a_family_in_two_source_versions_is_refused(folder: Path) -> None:
    image, places = define(folder)
    apt: Any = Recorder(index(candidate("libnvidia-x", "9-1", "nvidia-graphics-drivers", "9-1")), ["libnvidia-x"])
    with pytest.raises(GoldsmithError, match="driver would be torn"):
        resolve(apt, apt.index, image, [], places)
