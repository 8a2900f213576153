from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.lock.index import Index, Release, newest, read_packages, read_release, read_stanzas, split_source

DATA = Path(__file__).parents[1] / "data/apt"
STABLE = Release("trixie", "Debian:13.8/stable", datetime(2026, 11, 21, tzinfo=UTC), "0" * 64)


def index() -> Index:
    return Index(read_packages((DATA / "packages.txt").read_text(), STABLE))


def test_fields_of_a_package() -> None:
    (one,) = index().versions("libcudart12")
    assert (one.version, one.architecture) == ("12.4.127~12.4.1-2", "amd64")
    assert (one.source, one.source_version) == ("nvidia-cuda-toolkit", "12.4.1-2")
    assert one.filename == "pool/non-free/n/nvidia-cuda-toolkit/libcudart12_12.4.127~12.4.1-2_amd64.deb"
    assert (one.size, one.sha256[:8], one.suite, one.origin) == (176216, "361b3721", "trixie", "Debian:13.8/stable")


def test_comments_and_blank_paragraphs_are_no_packages() -> None:
    assert len(index().by_name) == 8


def test_essential_and_virtual_packages() -> None:
    assert index().essential() == ["bash"]
    assert index().providers("awk") == ["mawk"]
    assert index().providers("libcuda.so.1") == ["libcuda1"]
    assert index().providers("libcuda-12") == []


def test_packages_of_one_source_version() -> None:
    assert [one.name for one in index().of_source("bash", "5.2.37-2")] == ["bash"]
    assert list(index().of_source("bash", "5.2.37-2+b10")) == []


def test_nearest_names() -> None:
    assert index().nearest("libnccl")[0] == "libnccl2"
    assert "nvidia-persistenced" in index().nearest("nvidia-persistance")
    assert index().nearest("qqqqqq") == []


def test_the_origin_decides_between_two_suites_with_the_same_version() -> None:
    security = Release("trixie-security", "Debian-Security:13/stable-security", STABLE.date, "1" * 64)
    text = (DATA / "packages.txt").read_text()
    both = Index([*read_packages(text, STABLE), *read_packages(text, security)])
    assert both.find("mawk", "1.3.4.20250131-1", security.origin).suite == "trixie-security"
    assert both.find("mawk", "1.3.4.20250131-1", "unheard of").suite == "trixie"
    with pytest.raises(GoldsmithError):
        both.find("mawk", "9", security.origin)


@pytest.mark.parametrize(
    ("field", "expected"),
    [("", ("p", "1-1+b1")), ("src", ("src", "1-1+b1")), ("src (1-1)", ("src", "1-1"))],
)
def test_source_names(field: str, expected: tuple[str, str]) -> None:
    assert split_source(field, "p", "1-1+b1") == expected


def test_release_is_named_as_apt_names_it() -> None:
    release = read_release((DATA / "release-security.txt").read_text(), "trixie-security", "2" * 64)
    assert release.origin == "Debian-Security:13/stable-security"
    assert release.date == datetime(2026, 11, 29, 0, 53, 14, tzinfo=UTC)
    assert newest([STABLE, release]) == "2026-11-29T00:53:14Z"


def test_a_release_without_a_date_is_refused() -> None:
    with pytest.raises(GoldsmithError, match="no date"):
        read_release("Origin: x\n", "trixie", "")


def test_stanzas() -> None:
    names = [one["Package"] for one in read_stanzas((DATA / "packages.txt").read_text()) if "Package" in one]
    assert names[0] == "libnccl2" and len(names) == 8
