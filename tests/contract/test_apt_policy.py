"""What the package transaction and the audit of its pins lean on: how this machine's apt follows preferences, and what
it says of a pool that isn't there. Measured alike with apt 2.6.2 and 3.0.4."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from goldsmith.converge import node
from goldsmith.converge.aptsays import why_no_update
from goldsmith.probe.node.candidates import HIGHER, STANZA, candidate_facts, policies
from goldsmith.probe.node.run import Result, Run
from goldsmith.process import run
from tests.unit.lock_debs import Deb, Repository, needs_apt

pytestmark = [pytest.mark.contract, needs_apt]
SOURCE = "nvidia-graphics-drivers"
NAME = "Package: libcuda1\nPin: version 550-1\nPin-Priority: 1001\n\n"
REFUSED = f"Package: src:{SOURCE}\nPin: version *\nPin-Priority: -1\n\n"
STRAY = "Package: libcuda1\nPin: version 560-1\nPin-Priority: 1002\n\n"
EVERY = "Package: *\nPin: release *\nPin-Priority: 1002\n\n"


class Policy:
    """An apt with a repository of two drivers and nothing of this machine's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        repository = Repository(root)
        repository.publish([
            Deb("libcuda1", "550-1", SOURCE), Deb("libcuda1", "560-1", SOURCE), Deb("libcuda-new", "560-1", SOURCE),
            Deb("other", "1", SOURCE + "-not"),
        ])  # fmt: skip
        for folder in ("lists/partial", "cache/archives/partial", "preferences.d"):
            (root / folder).mkdir(parents=True)
        (root / "status").touch()
        (root / "sources.list").write_text(repository.source().line() + "\n")
        assert self.apt("apt-get", "update").code == 0

    def apt(self, program: str, *words: str) -> Result:
        options = {
            "Etc::SourceList": "sources.list", "Etc::SourceParts": "none", "Etc::Preferences": "preferences",
            "Etc::PreferencesParts": "preferences.d", "State::lists": "lists", "State::status": "status",
            "Cache": "cache",
        }  # fmt: skip
        more = [word for key, value in options.items() for word in ("-o", f"Dir::{key}={self.root}/{value}")]
        command = [program, *more, "-o", "APT::Architecture=amd64", "-o", "APT::Architectures::=amd64", *words]
        done = run(command, timeout=60, what="apt", check=False)
        return Result(done.code, done.out, done.err)

    def candidate(self, name: str, *words: str, preferences: str = "", **files: str) -> str:
        (self.root / "preferences").write_text(preferences)
        for old in (self.root / "preferences.d").iterdir():
            old.unlink()
        for file, text in files.items():
            (self.root / "preferences.d" / file.replace("_", "-")).write_text(text)
        return policies(self.apt("apt-cache", *words, "policy", name).out)[name][0]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return Policy(tmp_path_factory.mktemp("policy"))


def test_the_first_record_that_names_a_package_decides(policy: Policy) -> None:
    assert policy.candidate("libcuda1") == "560-1"
    assert policy.candidate("libcuda1", ours=NAME + REFUSED) == "550-1"
    # neither is a name stronger than a source or a pattern, nor a higher priority than a lower one
    assert policy.candidate("libcuda1", ours=REFUSED + NAME) == "(none)"
    assert policy.candidate("libcuda1", ours=NAME + REFUSED + STRAY) == "550-1"
    assert policy.candidate("libcuda1", ours=STRAY + NAME + REFUSED) == "560-1"
    # `*` is weaker than any of them, wherever it stands
    assert policy.candidate("libcuda1", ours=EVERY + NAME + REFUSED) == "550-1"


def test_files_are_read_in_their_names_order_and_preferences_before_them(policy: Policy) -> None:
    assert policy.candidate("libcuda1", a00_ours=NAME + REFUSED, b99_stray=STRAY) == "550-1"
    assert policy.candidate("libcuda1", a00_stray=STRAY, b00_ours=NAME + REFUSED) == "560-1"
    assert policy.candidate("libcuda1", preferences=STRAY, a00_ours=NAME + REFUSED) == "560-1"


def test_a_source_that_is_refused_is_refused_under_any_name(policy: Policy) -> None:
    assert policy.candidate("libcuda-new", ours=NAME + REFUSED) == "(none)"
    assert policy.candidate("other", ours=NAME + REFUSED) == "1"


def test_apt_can_be_tempted(policy: Policy, tmp_path: Path) -> None:
    """With a version that no repository has: so a pin that is off shows before one gains it."""
    packages = tmp_path / "Packages"
    packages.write_text(STANZA.format(name="libcuda1", source=SOURCE, version=HIGHER, arch="amd64", sha256="0" * 64))
    assert policy.candidate("libcuda1", "--with-source", str(packages)) == HIGHER
    assert policy.candidate("libcuda1", "--with-source", str(packages), ours=NAME + REFUSED) == "550-1"


def test_the_probe_asks_apt(policy: Policy) -> None:
    class Asking(Run):
        def __call__(self, cmd: object, timeout: float = 3) -> Result:
            words = list(cmd)  # type: ignore[call-overload]
            return policy.apt(*words) if words[0] == "apt-cache" else super().__call__(words, timeout)

    asking = Asking(want={"pinned": {"libcuda1": ["550-1", SOURCE]}})
    policy.candidate("libcuda1", ours=NAME + REFUSED)
    assert candidate_facts(asking) == {"libcuda1": {"candidate": "550-1", "priority": 1001}}
    policy.candidate("libcuda1")
    assert candidate_facts(asking) == {"libcuda1": {"candidate": "higher", "priority": 500}}
    assert candidate_facts(Run()) == {}


@pytest.mark.parametrize(
    ("uri", "told"),
    [("http://127.0.0.1:9/", "nothing listens at 127.0.0.1:9"), ("http://nowhere.invalid/", "nowhere.invalid")],
)
def test_a_pool_that_is_away_is_a_sentence(tmp_path: Path, uri: str, told: str) -> None:
    (tmp_path / "sources.list").write_text(f"deb {uri} lab main\n")
    (tmp_path / "lists/partial").mkdir(parents=True)
    options = {
        "Dir::Etc::SourceList": f"{tmp_path}/sources.list", "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::lists": f"{tmp_path}/lists", "Acquire::Retries": "0", "Acquire::http::Proxy": "DIRECT",
    }  # fmt: skip
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    done = run(["apt-get", *words, "--error-on=any", "update"], timeout=60, what="apt", check=False)
    assert done.code != 0
    line = why_no_update(f"{done.out}\n{done.err}")
    assert line.startswith(f"the pool {uri.rstrip('/')} gives no packages: ") and told in line, (
        line,
        done.out,
        done.err,
    )


def test_who_holds_dpkg_is_told(tmp_path: Path) -> None:
    """A real lock, of a real process; the script that nodes get, at another path."""
    lock = tmp_path / "lock-frontend"
    script = (Path(node.__path__[0]) / "wait_for_dpkg.py").read_text().replace("/var/lib/dpkg/", f"{tmp_path}/")
    command = [sys.executable, "-I", "-S", "-c", script, "0.5"]
    assert subprocess.run(command, timeout=30).returncode == 0, "there is no lock at all"
    with lock.open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        done = subprocess.run(command, timeout=30, capture_output=True, text=True)
    assert done.returncode == 1 and "pytest" in done.stdout and "after 0.5 s" in done.stdout
    assert subprocess.run(command, timeout=30).returncode == 0
