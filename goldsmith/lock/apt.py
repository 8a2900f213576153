"""A private apt: its own sources, state and empty dpkg status, so that what the machine has installed, pinned or
held never colours a lock, and a lock never touches the machine.

Taken over from the machine are its Acquire settings (proxies, timeouts, certificates) and credentials
(apt_auth.conf(5)), never what would let an unsigned repository pass.
Facts: apt.conf(5), apt-get(8); the output formats are held by tests/contract/test_apt_*.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from goldsmith import atomic
from goldsmith.errors import GoldsmithError
from goldsmith.lock.index import Candidate, Index, Release, read_packages, read_release
from goldsmith.lock.sources import Source
from goldsmith.model.image import BASE
from goldsmith.process import Done, run

HELPER = "/usr/lib/apt/apt-helper"
Say = Callable[[str], None]

_NOT_TAKEN = re.compile(
    r"Acquire::(IndexTargets|Languages|GzipIndexes|CompressionTypes|cdrom|Changelogs|"
    r"Allow|Max-ValidTime|[a-z0-9]+::Pipeline-Depth|By-Hash|PDiffs)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Inst:
    """One package that a simulation would install. origin: of the first repository that has it."""

    name: str
    version: str
    origin: str
    architecture: str


class Apt:
    """apt below `root`, for one architecture. `root` is kept between runs: unchanged indexes aren't fetched again."""

    def __init__(self, root: Path, sources: Sequence[Source], architecture: str) -> None:
        self.root, self.sources, self.architecture = root, tuple(sources), architecture
        for folder in ("etc", "lists/partial", "cache/archives/partial", "log", "empty.d"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        atomic.write(root / "status", "")
        self.pin({})
        atomic.write(root / "etc/sources.list", "".join(f"{one.line()}\n" for one in self.sources))
        # 0600: a proxy's password may be in the machine's settings
        atomic.write(root / "etc/apt.conf", self._configuration(), mode=0o600)

    def _configuration(self) -> str:
        root = self.root
        if re.search(r'["\\\n;]', str(root)):
            raise GoldsmithError("apt can't work in a folder with such a name", where=str(root))
        own = f"""
            Dir "{root}/"; Dir::Etc "{root}/etc/"; Dir::State "{root}/"; Dir::Cache "{root}/cache/";
            Dir::Log "{root}/log/"; Dir::State::status "{root}/status"; Dir::State::lists "{root}/lists/";
            Dir::Etc::main "{root}/etc/none"; Dir::Etc::parts "{root}/empty.d";
            Dir::Etc::sourcelist "{root}/etc/sources.list"; Dir::Etc::sourceparts "{root}/empty.d";
            Dir::Etc::preferences "{root}/etc/preferences"; Dir::Etc::preferencesparts "{root}/empty.d";
            Dir::Etc::trusted "{root}/etc/none"; Dir::Etc::trustedparts "{root}/empty.d";
            Dir::Etc::netrc "/etc/apt/auth.conf"; Dir::Etc::netrcparts "/etc/apt/auth.conf.d/";
            Dir::Cache::archives "{root}/cache/archives/"; Dir::Cache::srcpkgcache "";
            APT::Architecture "{self.architecture}"; APT::Architectures {{ "{self.architecture}"; }};
            APT::Install-Recommends "false"; APT::Install-Suggests "false"; APT::Solver "internal";
            Acquire::Languages "none"; Acquire::GzipIndexes "false"; Acquire::Retries "3";
            Acquire::AllowInsecureRepositories "false"; Acquire::AllowWeakRepositories "false";
            Acquire::AllowDowngradeToInsecureRepositories "false"; APT::Get::AllowUnauthenticated "false";
            APT::Sandbox::User "root"; APT::Update::Error-Mode "any"; APT::Get::List-Cleanup "true";
        """
        lines = [line.strip() for line in own.strip().splitlines()]
        return "\n".join([*machine_settings(), *lines]) + "\n"

    def pin(self, versions: Mapping[str, str]) -> None:
        """Hold these packages to these versions in what follows, whatever else the repositories have."""
        atomic.write(
            self.root / "etc/preferences",
            "\n".join(
                f"Package: {name}\nPin: version {version}\nPin-Priority: 1001\n"
                for name, version in sorted(versions.items())
            ),
        )

    def run(
        self, argv: Sequence[str], *, timeout: float, what: str, check: bool = True, say: Say | None = None
    ) -> Done:
        """Run one of apt's programs on this state."""
        env = {"APT_CONFIG": str(self.root / "etc/apt.conf"), "DEBIAN_FRONTEND": "noninteractive"}
        return run(argv, timeout=timeout, what=what, check=check, env=env, on_line=say)

    def update(self, say: Say) -> None:
        """Fetch and verify the indexes. Raises GoldsmithError that tells missing keys from a missing network."""
        what = "fetch the package indexes"
        done = self.run(["apt-get", "-q", "update"], timeout=900, what=what, check=False, say=say)
        if done.code != 0:
            raise update_error(done.out, self.sources)

    def read(self) -> tuple[Index, list[Release]]:
        """What the fetched indexes offer, and the suites' release files."""
        form = "$(FILENAME)\t$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)"
        done = self.run(
            ["apt-get", "indextargets", "--format", form, "Created-By: Packages"],
            timeout=60,
            what="list the package indexes",
        )
        releases: dict[Source, Release] = {}
        candidates: list[Candidate] = []
        for line in done.out.splitlines():
            filename, uri, suite, component = line.split("\t")
            path = Path(filename)
            if not path.is_file():
                continue  # an empty component has no file
            source = next(one for one in self.sources if one.offers(uri, suite))
            if source not in releases:
                releases[source] = self._release(path, source, component)
            candidates += read_packages(path.read_text(errors="replace"), releases[source])
        if lacking := [one.suite for one in self.sources if one not in releases]:
            raise GoldsmithError(
                f"the repository has no packages for suite {', '.join(lacking)}",
                where="fetch the package indexes",
            )
        return Index(candidates), list(releases.values())

    def _release(self, packages: Path, source: Source, component: str) -> Release:
        # a flat repository's index has no component in its name
        ending = f"_{component.replace('/', '_')}_binary-" if source.components else "_Packages"
        stem = packages.name[: packages.name.rindex(ending)]
        for name in ("InRelease", "Release"):
            path = packages.with_name(f"{stem}_{name}")
            if path.is_file():
                data = path.read_bytes()
                text = data.decode(errors="replace")
                return read_release(text, source.suite, sha256(data).hexdigest(), source.repository)
        raise GoldsmithError(f"apt kept no release file of suite {source.suite}", where=str(packages.parent))

    def simulate(self, wanted: Iterable[str]) -> list[Inst]:
        """What installing `wanted` (names or name=version) on an empty system comes to.

        Raises GoldsmithError with apt's reason where that can't be.
        """
        done = self.run(
            ["apt-get", "-q", "-s", "--no-remove", "install", *sorted(set(wanted))],
            timeout=300,
            what="resolve the image's packages",
            check=False,
        )
        if done.code != 0:
            raise GoldsmithError(
                f"the image's packages can't be installed together:\n  {conflict(done.out, done.err)}",
                where="resolving packages",
            )
        return parse_simulation(done.out)


def machine_settings() -> list[str]:
    """The machine's own Acquire settings as apt.conf lines; none if apt-config isn't there."""
    done = run(
        ["apt-config", "dump", "--no-empty", "--format", '%f "%v";%n', "Acquire"],
        timeout=30,
        what="read this machine's apt settings",
        check=False,
    )
    lines = done.out.splitlines() if done.code == 0 else []
    return [line for line in lines if line.startswith("Acquire::") and not _NOT_TAKEN.match(line)]


_INST = re.compile(r"Inst (\S+) (?:\[[^]]*\] )?\((\S+) ([^[]*?)\s*\[([a-z0-9-]+)\]\)")


def parse_simulation(text: str) -> list[Inst]:
    """The Inst lines of `apt-get -s install`: `Inst libc6 (2.41-12 Debian:13.2/stable [amd64]) []`.

    Several repositories that have it stand comma-separated; the first is the one apt fetches from.
    """
    found = []
    for line in text.splitlines():
        if line.startswith("Inst "):
            match = _INST.match(line)
            if not match:
                raise GoldsmithError(f"apt said what isn't understood: {line}", where="resolving packages")
            name = match[1].partition(":")[0]
            found.append(Inst(name, match[2], match[3].split(", ")[0], match[4]))
    return found


def conflict(out: str, err: str) -> str:
    """apt's reason, without its preamble and its advice on distributions in transition."""
    lines = out.splitlines()
    start = next((number for number, line in enumerate(lines) if "unmet dependencies" in line), None)
    reasons = [line.rstrip() for line in lines[start + 1 :] if line.strip()] if start is not None else []
    errors = [line.strip() for line in err.splitlines() if line.startswith("E:")]
    return "\n  ".join([*reasons[:12], *errors[:6]]) or "apt gave no reason"


def update_error(output: str, sources: Sequence[Source]) -> GoldsmithError:
    """Why indexes could not be fetched: keys, network, or what apt says; and of which repository, if it is the
    image's own."""
    where = "fetch the package indexes"
    lines = [line.strip() for line in output.splitlines() if line.startswith(("E:", "W:", "Err:"))]
    said = "\n  ".join(dict.fromkeys(lines[-6:]))
    own = sorted({one.repository for one in sources if one.repository != BASE and one.uri.rstrip("/") in said})
    if own:
        return _own_error(output, said, own)
    keyrings = sorted({one.keyring for one in sources if one.repository == BASE})
    if keys := sorted(set(re.findall(r"(?:NO_PUBKEY|EXPKEYSIG|Missing key) ([0-9A-F]{8,})", output))):
        return GoldsmithError(
            f"the repositories are signed with keys that this machine's keyring lacks or has expired: "
            f"{', '.join(keys)}",
            where=", ".join(keyrings),
            hint="upgrade the package that holds the keyring (apt-get install --only-upgrade "
            "debian-archive-keyring); where this system's is older than the image's release, install the newer "
            "release's debian-archive-keyring package, which is one file without dependencies",
        )
    if absent := re.findall(r"The repository '\S+ (\S+) Release' does not have a Release file", output):
        return GoldsmithError(
            f"the mirror has no suite {', '.join(sorted(set(absent)))}",
            where=where,
            hint="correct base.suites in image.yml; a release that has left the mirrors needs its archive as the "
            "machine's apt source",
        )
    if re.search(r"isn't signed|is not signed|not available.*signature|signature.*(invalid|verified)|"
                 r"BADSIG|NOSPLIT|is no longer signed|OpenPGP signature", output):  # fmt: skip
        return GoldsmithError(
            f"the repositories' signatures can't be verified:\n  {said}",
            where=", ".join(keyrings),
            hint="the mirror or a proxy changes the files, or the keyring is out of date; nothing was taken",
        )
    if re.search(r"Could not (resolve|connect)|Temporary failure|Unable to connect|Network is unreachable|"
                 r"timed out|Connection refused", output):  # fmt: skip
        return GoldsmithError(
            f"the repositories can't be reached:\n  {said}",
            where=where,
            hint="check the network, or the proxy in this machine's apt settings, and run it again",
        )
    return GoldsmithError(f"apt could not fetch them:\n  {said}", where=where)


def _own_error(output: str, said: str, names: Sequence[str]) -> GoldsmithError:
    """Why an image's own repositories could not be fetched."""
    where = f"image.yml, {', '.join(f'repositories.{name}' for name in names)}"
    if re.search(r"NO_PUBKEY|EXPKEYSIG|EXPSIG|Missing key|BADSIG|not signed|no longer signed|signature", output):
        what = "isn't signed with the key that image.yml names, or that key has expired"
        hint = "compare the publisher's fingerprint and the key's dates with key.fingerprint; nothing was taken"
    else:
        what, hint = "can't be read", "are uri, suites and components right, and is the network there?"
    return GoldsmithError(f"repository {' and '.join(names)} {what}:\n  {said}", where=where, hint=hint)
