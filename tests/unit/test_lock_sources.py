"""Which mirrors a machine's apt sources come to. Hosts here are .invalid: none is looked up."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.lock import sources
from goldsmith.lock.sources import (
    Mirrors,
    find_mirrors,
    host_mirrors,
    is_security,
    parse_deb822,
    parse_list,
    read_entries,
    sources_of,
)

DEBIAN_12 = """
Types: deb
# a comment with a: colon
URIs: http://mirror.invalid/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.invalid/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
OTHERS = """
Types: deb
URIs: https://others.invalid/debian
Suites: bookworm
Components: stable
Signed-By: /etc/apt/keyrings/others.gpg

Types: deb
URIs: https://more.invalid/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 xxxx
 -----END PGP PUBLIC KEY BLOCK-----

Enabled: no
Types: deb
URIs: http://off.invalid/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://src.invalid/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
ONE_LINE = """
# deb http://old.invalid/debian bookworm main
deb cdrom:[Debian GNU/Linux 12]/ bookworm main
deb-src http://mirror.invalid/debian bookworm main
deb [arch=amd64] https://hashi.invalid bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.invalid/debian/ bookworm main #
deb http://mirror.invalid/debian-security bookworm-security main
"""
UBUNTU_24 = """
Types: deb
URIs: http://ubuntu.invalid/ubuntu/
Suites: noble noble-updates noble-backports
Components: main restricted universe multiverse
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg
"""
EXPECTED = ("http://mirror.invalid/debian", "http://mirror.invalid/debian-security")


def machine(tmp_path: Path, system: str, codename: str, **files: str) -> tuple[Path, Path]:
    etc = tmp_path / "apt"
    (etc / "sources.list.d").mkdir(parents=True)
    for name, text in files.items():
        (etc / "sources.list.d" / name.replace("__", ".")).write_text(text)
    release = tmp_path / "os-release"
    release.write_text(f'PRETTY_NAME="x"\nID={system}\nVERSION_CODENAME="{codename}"\n')
    return etc, release


def test_a_debian_machine_gives_its_own_mirrors(tmp_path: Path) -> None:
    etc, release = machine(tmp_path, "debian", "bookworm", debian__sources=DEBIAN_12, others__sources=OTHERS)
    mirrors = host_mirrors("debian", etc, release)
    assert (mirrors.archive, mirrors.security) == EXPECTED
    assert mirrors.of("trixie-updates") == EXPECTED[0]
    assert mirrors.of("trixie-security") == EXPECTED[1]


def test_one_line_sources_and_comments_and_discs(tmp_path: Path) -> None:
    etc, release = machine(tmp_path, "debian", "bookworm", debian__list=ONE_LINE)
    mirrors = host_mirrors("debian", etc, release)
    assert (mirrors.archive, mirrors.security) == EXPECTED


def test_sources_list_itself_counts(tmp_path: Path) -> None:
    etc, release = machine(tmp_path, "debian", "bookworm")
    (etc / "sources.list").write_text(ONE_LINE)
    assert host_mirrors("debian", etc, release).archive == EXPECTED[0]


def test_other_publishers_and_disabled_ones_never_count() -> None:
    assert find_mirrors(parse_deb822(OTHERS), "bookworm").archive != "https://others.invalid/debian"
    assert find_mirrors(parse_deb822(OTHERS.split("Types: deb\nURIs: https://more")[0]), "bookworm").archive is None
    # an embedded key names no file; what such an entry serves must still be signed by Debian's own keys
    assert not [one for one in parse_deb822(OTHERS) if "off.invalid" in one.uris[0] or "src." in one.uris[0]]


def test_files_with_other_endings_are_not_sources(tmp_path: Path) -> None:
    etc, release = machine(tmp_path, "debian", "bookworm", debian__sources__save=DEBIAN_12)
    assert host_mirrors("debian", etc, release) == Mirrors(None, None, "this machine's apt sources")


def test_an_ubuntu_machine_has_no_mirror_of_debian(tmp_path: Path) -> None:
    etc, release = machine(tmp_path, "ubuntu", "noble", ubuntu__sources=UBUNTU_24)
    assert host_mirrors("debian", etc, release) == Mirrors(None, None)


def test_an_ubuntu_machine_falls_back_to_mmdebstrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keyring = tmp_path / "keys.gpg"
    keyring.touch()
    monkeypatch.setitem(sources.KEYRINGS, "debian", str(keyring))
    monkeypatch.setattr(sources, "host_mirrors", lambda _: Mirrors(None, None))
    monkeypatch.setattr(sources, "default_mirrors", lambda _: Mirrors(*EXPECTED, "mmdebstrap's default"))
    found, origin = sources_of("debian", "trixie", ["trixie", "trixie-security"], ["main", "contrib"])
    assert origin == "mmdebstrap's default"
    assert [one.line() for one in found] == [
        f"deb [signed-by={keyring}] {EXPECTED[0]} trixie main contrib",
        f"deb [signed-by={keyring}] {EXPECTED[1]} trixie-security main contrib",
    ]


def test_a_machine_without_security_sources_takes_only_those_from_mmdebstrap() -> None:
    host = Mirrors("http://mine.invalid/debian", None, "this machine's apt sources")
    both = host.completed_by(Mirrors(*EXPECTED, "mmdebstrap's default"))
    assert (both.archive, both.security) == ("http://mine.invalid/debian", EXPECTED[1])
    assert both.origin == "this machine's apt sources"


def test_no_keyring_is_said_with_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sources.KEYRINGS, "debian", str(tmp_path / "none.gpg"))
    with pytest.raises(GoldsmithError) as caught:
        sources_of("debian", "trixie", ["trixie"], ["main"])
    assert caught.value.hint == "apt-get install debian-archive-keyring"


def test_mirror_lists_of_cloud_images_are_opened(tmp_path: Path) -> None:
    listed = tmp_path / "debian.list"
    listed.write_text("# first\nhttp://mirror.invalid/debian\tpriority:1\nhttp://second.invalid/debian\n")
    text = DEBIAN_12.replace("http://mirror.invalid/debian\n", f"mirror+file://{listed}\n", 1)
    etc, release = machine(tmp_path, "debian", "bookworm", debian__sources=text)
    assert host_mirrors("debian", etc, release).archive == "http://mirror.invalid/debian"


def test_what_has_to_be_fetched_first_is_no_mirror(tmp_path: Path) -> None:
    text = DEBIAN_12.replace("http://mirror.invalid/debian\n", "mirror://list.invalid/mirrors\n", 1)
    etc, release = machine(tmp_path, "debian", "bookworm", debian__sources=text)
    assert host_mirrors("debian", etc, release).archive is None


def test_entries_of_a_machine_without_sources(tmp_path: Path) -> None:
    assert read_entries(tmp_path / "none") == []


def test_options_and_too_short_lines() -> None:
    assert parse_list("deb http://x.invalid\nrubbish\n") == []
    (one,) = parse_list("deb [ arch=amd64 signed-by=/k.gpg ] http://x.invalid/debian trixie main")
    assert (one.signed_by, one.suites, one.components) == ("/k.gpg", ("trixie",), ("main",))


@pytest.mark.parametrize(
    ("suite", "answer"),
    [("trixie-security", True), ("buster/updates", True), ("trixie", False), ("trixie-updates", False)],
)
def test_security_suites(suite: str, answer: bool) -> None:
    assert is_security(suite) is answer


def test_ubuntus_own_mirrors(tmp_path: Path) -> None:
    """deb822 as Ubuntu 24.04 lays it down, with another publisher's repository beside it."""
    etc = tmp_path / "apt"
    (etc / "sources.list.d").mkdir(parents=True)
    (etc / "sources.list.d/ubuntu.sources").write_text(
        "Types: deb\nURIs: http://mirror.invalid/ubuntu/\nSuites: noble noble-updates noble-backports\n"
        "Components: main universe\nSigned-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n\n"
        "Types: deb\nURIs: http://security.invalid/ubuntu/\nSuites: noble-security\n"
        "Components: main universe\nSigned-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n"
    )
    (etc / "sources.list.d/other.list").write_text("deb http://other.invalid/debian noble main\n")
    release = tmp_path / "os-release"
    release.write_text("ID=ubuntu\nVERSION_CODENAME=noble\n")
    mirrors = host_mirrors("ubuntu", etc, release)
    assert (mirrors.archive, mirrors.security) == ("http://mirror.invalid/ubuntu", "http://security.invalid/ubuntu")
    assert mirrors.complete(["noble", "noble-updates", "noble-security"])
    assert host_mirrors("debian", etc, release) == Mirrors(None, None)
