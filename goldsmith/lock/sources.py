"""Where an image's packages are fetched: the machine's own apt sources, or else mmdebstrap's default.

An image names distribution, release, suites and components, never a mirror. What counts is that every package is
vouched for by the distribution's own keys and, once locked, by its hash.
Facts: sources.list(5) for both formats, os-release(5), mmdebstrap(1).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.model.image import BASE
from goldsmith.process import run

KEYRINGS = {
    "debian": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "ubuntu": "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
}
KEYRING_PACKAGES = {"debian": "debian-archive-keyring", "ubuntu": "ubuntu-keyring"}


@dataclass(frozen=True)
class Entry:
    """One enabled `deb` entry of a sources file. signed_by: a path, or empty where the entry names none."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str = ""


@dataclass(frozen=True)
class Mirrors:
    """URIs of a distribution's archive and of its security archive; None where it isn't known."""

    archive: str | None
    security: str | None
    origin: str = ""

    def of(self, suite: str) -> str | None:
        return self.security if is_security(suite) else self.archive

    def completed_by(self, other: Mirrors) -> Mirrors:
        return replace(
            self,
            archive=self.archive or other.archive,
            security=self.security or other.security,
            origin=self.origin if self.archive else other.origin,
        )

    def complete(self, suites: Iterable[str]) -> bool:
        return all(self.of(suite) for suite in suites)


@dataclass(frozen=True)
class Source:
    """One suite to fetch from. keyring: the file whose keys must have signed it. repository: the image's name for
    where it belongs, `base` for the distribution's own."""

    uri: str
    suite: str
    components: tuple[str, ...]
    keyring: str
    repository: str = BASE

    def line(self) -> str:
        """As sources.list(5) has it."""
        return f"deb [signed-by={self.keyring}] {self.uri} {self.suite} {' '.join(self.components)}".rstrip()

    def offers(self, uri: str, suite: str) -> bool:
        """Whether an index of this URI and suite, as apt names them, is one of this source. A flat one's suite `/` has
        no name there."""
        return uri.rstrip("/") == self.uri.rstrip("/") and suite.rstrip("/") == self.suite.rstrip("/")


def is_security(suite: str) -> bool:
    """`trixie-security`, and `buster/updates` as it was called before Debian 11."""
    return suite.endswith(("-security", "/updates"))


def parse_deb822(text: str) -> list[Entry]:
    """The enabled deb entries of a *.sources file. An embedded key counts as no path."""
    entries = []
    for paragraph in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in paragraph.splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if line[0] in " \t":
                fields[name] = f"{fields.get(name, '')} {line.strip()}"
            else:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        if fields.get("enabled", "yes").lower() in ("no", "false", "0", "off", "disable", "without"):
            continue
        if "deb" not in fields.get("types", "").split():
            continue
        signed_by = fields.get("signed-by", "")
        entries.append(
            Entry(
                tuple(fields.get("uris", "").split()),
                tuple(fields.get("suites", "").split()),
                tuple(fields.get("components", "").split()),
                signed_by if signed_by.startswith("/") else "",
            )
        )
    return entries


def parse_list(text: str) -> list[Entry]:
    """The deb entries of a one-line *.list file."""
    entries = []
    for line in text.splitlines():
        match = re.match(r"deb\s+(?:\[([^]]*)\]\s+)?(.+)", line.split("#", 1)[0].strip())
        if not match:
            continue
        options = dict(word.split("=", 1) for word in (match[1] or "").split() if "=" in word)
        words = match[2].split()
        if len(words) < 2:
            continue
        signed_by = options.get("signed-by", "")
        entries.append(
            Entry(
                (words[0],),
                (words[1],),
                tuple(words[2:]),
                signed_by if signed_by.startswith("/") else "",
            )
        )
    return entries


def read_entries(etc: Path) -> list[Entry]:
    """Every enabled entry of a machine, `etc` being its /etc/apt. Mirror lists (apt-transport-mirror(1)) are opened:
    cloud images name their mirrors so, and one deb is fetched from one address."""
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    entries: list[Entry] = []
    for path in files:
        try:
            if path.suffix == ".list":
                entries += parse_list(path.read_text(errors="replace"))
            elif path.suffix == ".sources":
                entries += parse_deb822(path.read_text(errors="replace"))
        except OSError:
            continue  # what this machine's apt can't read either gives us no mirror
    return [replace(one, uris=tuple(uri for each in one.uris for uri in _opened(each))) for one in entries]


def _opened(uri: str) -> list[str]:
    """The addresses behind a URI: of a mirror list on this machine its lines, of a plain one itself."""
    if uri.startswith("mirror+file:"):
        path = Path("/" + uri.removeprefix("mirror+file:").lstrip("/"))
        try:
            lines = path.read_text().splitlines()
        except OSError:
            return []
        return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    # a list that has to be fetched first, and discs: not for us
    return [] if uri.startswith(("mirror", "cdrom:")) else [uri]


def find_mirrors(entries: Sequence[Entry], codename: str, distribution: str = "debian") -> Mirrors:
    """The distribution's own mirrors among a machine's sources, other publishers' left out.

    codename: the machine's release. Other publishers use its name as their suite, too, so an entry counts only
    if it has `main` and is signed by the distribution's keyring, or names no key and ends in the
    distribution's name; a wrong guess is caught by the signature.
    """
    archive = security = None
    for entry in sorted(entries, key=lambda one: "archive-keyring" not in one.signed_by):
        uri = next((one.rstrip("/") for one in entry.uris), None)
        ours = f"{distribution}-archive" in entry.signed_by or (
            not entry.signed_by
            and uri is not None
            and re.search(rf"/{distribution}(-security|-ports)?(/|$|\.list$)", uri)
        )
        if uri is None or not ours or "main" not in entry.components:
            continue
        for suite in entry.suites:
            if suite in (
                f"{codename}-security",
                f"{codename}/updates",
                "stable-security",
                "testing-security",
            ):
                security = security or uri
            elif suite in (codename, f"{codename}-updates", "stable", "testing", "unstable", "sid"):
                archive = archive or uri
    return Mirrors(archive, security, "this machine's apt sources")


def os_release(path: Path = Path("/etc/os-release")) -> dict[str, str]:
    """The fields of os-release(5); empty if there is no such file."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, value in pairs}


def host_mirrors(distribution: str, etc: Path = Path("/etc/apt"), release: Path = Path("/etc/os-release")) -> Mirrors:
    """The machine's own mirrors, if it runs the same distribution, whichever its release."""
    fields = os_release(release)
    if fields.get("ID") != distribution:
        return Mirrors(None, None)
    return find_mirrors(read_entries(etc), fields.get("VERSION_CODENAME", ""), distribution)


# Which suite mmdebstrap is asked for: one that an older mmdebstrap knows, too. The addresses are the same for every
# release of a distribution.
_KNOWN_SUITE = {"debian": "stable", "ubuntu": "jammy"}


def default_mirrors(distribution: str) -> Mirrors:
    """What mmdebstrap would use of itself: it writes the sources into a tree that it then throws away.

    Nothing is fetched: update and download are skipped.
    """
    known = _KNOWN_SUITE[distribution]
    with tempfile.TemporaryDirectory(prefix="goldsmith-sources-") as folder:
        run(
            ["mmdebstrap", "--variant=custom", "--skip=update,download,cleanup", "--format=null",
             f"--setup-hook=copy-out /etc/apt {folder}", known, "/dev/null"],
            timeout=60,
            what="ask mmdebstrap for its default mirror",
            hint="this machine's apt sources aren't of the image's distribution, so mmdebstrap's default is "
            "needed: apt-get install mmdebstrap",
        )  # fmt: skip
        entries = read_entries(Path(folder) / "apt")
    archive = next((one.uris[0] for one in entries if known in one.suites), None)
    security = next((one.uris[0] for one in entries if any(map(is_security, one.suites))), None)
    return Mirrors(archive, security, "mmdebstrap's default")


def sources_of(
    distribution: str, release: str, suites: Sequence[str], components: Sequence[str]
) -> tuple[list[Source], str]:
    """Where to fetch each suite, and in words where that is known from.

    Raises GoldsmithError if there is no keyring or no mirror.
    """
    keyring = KEYRINGS[distribution]
    if not Path(keyring).is_file():
        package = KEYRING_PACKAGES[distribution]
        raise GoldsmithError(
            f"the keys of {distribution}'s archive aren't here, so nothing from it can be trusted",
            where=keyring,
            hint=f"apt-get install {package}",
        )
    mirrors = host_mirrors(distribution)
    if not mirrors.complete(suites):
        mirrors = mirrors.completed_by(default_mirrors(distribution))
    sources = []
    for suite in suites:
        uri = mirrors.of(suite)
        if uri is None:
            raise GoldsmithError(
                f"neither this machine's apt sources nor mmdebstrap know where suite {suite} is",
                where=f"{distribution} {release}",
                hint="add the suite to this machine's apt sources",
            )
        sources.append(Source(uri, suite, tuple(components), keyring))
    return sources, mirrors.origin
