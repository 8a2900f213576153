"""An image's own repositories beside the distribution's, with the real apt: flat as NVIDIA's, signed, in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.lock import checking as checking_module
from goldsmith.lock import filling, lock_image, locking
from goldsmith.lock.checking import check_lock
from goldsmith.lock.pool import Pool
from goldsmith.lock.signing import pool_key, sign
from goldsmith.model.finding import Severity
from goldsmith.model.lock import Lock
from goldsmith.process import run
from tests.unit.lock_debs import Deb, Repository, build, needs_apt

pytestmark = needs_apt

IMAGE = """\
schema: 1
name: tiny
base:
  distribution: debian
  release: trixie
  suites: [trixie]
  packages: [editor]
repositories:
  cuda:
    uri: {uri}
    suites: [/]
    key:
      fingerprint: {fingerprint}
      {key}
stack:
  driver:
    version: 550.144.03
    packages: [nvidia-driver-550-open]
  fabricmanager:
    version: 550.144.03
    packages: [nvidia-fabricmanager-550]
  nccl:
    packages: [libnccl2]
roles: []
"""
BASE = [
    Deb("base-tiny", fields={"Essential": "yes"}), Deb("apt", "3.0.4"),
    Deb("editor", "1.0", fields={"Depends": "libedit (>= 1.0)"}), Deb("libedit", "1.0"),
    # the distribution has packages of the same names, as Ubuntu's multiverse does
    Deb("nvidia-fabricmanager-550", "550.163.01-0ubuntu1", "fabric-manager-550"),
    Deb("libnccl2", "2.18.1-1"),
]  # fmt: skip
CUDA = [
    Deb("nvidia-driver-550-open", "550.144.03-0ubuntu1", "nvidia-graphics-drivers-550",
        {"Depends": "libnvidia-compute-550 (>= 550.144.03)"}),
    Deb("libnvidia-compute-550", "550.144.03-0ubuntu1", "nvidia-graphics-drivers-550"),
    Deb("libnvidia-compute-550", "550.163.01-0ubuntu1", "nvidia-graphics-drivers-550"),
    Deb("nvidia-driver-550-open", "550.163.01-0ubuntu1", "nvidia-graphics-drivers-550",
        {"Depends": "libnvidia-compute-550 (>= 550.163.01)"}),
    Deb("nvidia-fabricmanager-550", "550.144.03-1", "fabricmanager-550",
        files={"/lib/systemd/system/nvidia-fabricmanager.service": b"[Unit]\n"}),
    Deb("libnccl2", "2.21.5-1+cuda12.5"),
]  # fmt: skip


class Flat:
    """A flat repository with a key of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root / "cuda"
        self.root.mkdir()
        self.key = pool_key(root / "cuda-key")
        (self.root / "key.asc").write_text(self.key.public)

    def publish(self, debs: list[Deb]) -> None:
        for old in self.root.glob("*.deb"):
            old.unlink()
        for deb in debs:
            build(deb, self.root)
        index = run(["apt-ftparchive", "packages", "."], timeout=60, what="index", cwd=self.root).out
        (self.root / "Packages").write_text(index)
        release = self.root / "Release"
        release.unlink(missing_ok=True)
        option = "-oAPT::FTPArchive::Release::Label=NVIDIA CUDA"
        release.write_text(run(["apt-ftparchive", option, "release", "."], timeout=60, what="i", cwd=self.root).out)
        sign(self.key, release)


class Project:
    def __init__(self, root: Path, base: Repository, cuda: Flat) -> None:
        self.root, self.base, self.cuda = root, base, cuda
        self.image = root / "images/tiny"
        self.image.mkdir(parents=True)
        (root / "roles").mkdir()
        self.define()

    def define(self, old: str = "", new: str = "", *, key: str = "", fingerprint: str = "") -> None:
        text = IMAGE.format(uri=f"file:{self.cuda.root}/", fingerprint=fingerprint or self.cuda.key.fingerprint,
                            key=key or f"url: file://{self.cuda.root}/key.asc")  # fmt: skip
        assert old in text
        (self.image / "image.yml").write_text(text.replace(old, new, 1) if old else text)

    def lock(self, **how: object) -> Lock:
        return lock_image(self.root, self.image, **how)[0]  # type: ignore[arg-type]

    def versions(self, **how: object) -> dict[str, str]:
        return {name: one.version for name, one in self.lock(**how).packages.items()}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    base, cuda = Repository(tmp_path), Flat(tmp_path)
    base.publish(BASE)
    cuda.publish(CUDA)
    monkeypatch.delenv("GOLDSMITH_STATE", raising=False)
    monkeypatch.setattr(locking, "require_tools", lambda: None)
    for module in (locking, filling):
        monkeypatch.setattr(module, "sources_of", lambda *_: ([base.source()], "a test's repository"))
    return Project(tmp_path / "project", base, cuda)


def test_a_lock_of_two_repositories(project: Project) -> None:
    lock = project.lock()
    from_cuda = {name for name, one in lock.packages.items() if one.repository == "cuda"}
    assert from_cuda == {"nvidia-driver-550-open", "libnvidia-compute-550", "nvidia-fabricmanager-550"}
    # what only a dependency names moves with its source, exactly, though the repository has a higher one
    assert lock.packages["libnvidia-compute-550"].version == "550.144.03-0ubuntu1"
    assert lock.packages["libnvidia-compute-550"].family == "driver"
    assert lock.packages["nvidia-fabricmanager-550"].units == ["nvidia-fabricmanager.service"]
    # a name that both have is the distribution's, however high the other's version is
    assert lock.packages["libnccl2"].version == "2.18.1-1"
    cuda = lock.repositories["cuda"]
    assert cuda.fingerprint == project.cuda.key.fingerprint and list(cuda.releases) == ["/"]
    assert lock.repositories["base"].uri is None and "localhost" not in lock.to_text()
    text = (project.image / "image.lock").read_bytes()
    (project.image / "image.lock").unlink()
    project.lock(refresh=True)
    assert (project.image / "image.lock").read_bytes() == text, "the same repositories give the same bytes"


def test_a_family_says_whose_packages_it_takes(project: Project) -> None:
    project.define("    packages: [libnccl2]\n", "    packages: [libnccl2]\n    repository: cuda\n")
    assert project.versions()["libnccl2"] == "2.21.5-1+cuda12.5"
    own = "    version: {}\n    packages: [nvidia-fabricmanager-550]\n"
    project.define(own.format("550.144.03"), own.format("550.163.01") + "    repository: cuda\n")
    with pytest.raises(GoldsmithError) as caught:
        project.lock()
    assert "repository cuda has no nvidia-fabricmanager-550 at 550.163.01" in caught.value.what
    assert "550.163.01-0ubuntu1 (Debian" in caught.value.hint and "550.144.03-1 (cuda)" in caught.value.hint
    assert "stack.fabricmanager.version" in caught.value.where


def test_only_the_key_with_that_fingerprint_is_trusted(project: Project, tmp_path: Path) -> None:
    stranger = pool_key(tmp_path / "stranger")
    project.define(fingerprint=stranger.fingerprint)
    with pytest.raises(GoldsmithError) as caught:
        project.lock()
    assert project.cuda.key.fingerprint in caught.value.what and stranger.fingerprint in caught.value.what
    assert "repositories.cuda.key.url" in caught.value.where
    # a file with the right key and another: only the right one counts
    (project.image / "both.asc").write_text(stranger.public + project.cuda.key.public)
    project.define(key="file: both.asc")
    project.lock()
    # … and a repository that the other key signed is refused
    (project.image / "image.lock").unlink()
    (project.cuda.root / "Release").write_text((project.cuda.root / "Release").read_text())
    sign(stranger, project.cuda.root / "Release")
    with pytest.raises(GoldsmithError, match=r"signed with keys|signatures"):
        project.lock()
    project.define(key="file: none.asc", fingerprint="A" * 40)
    with pytest.raises(GoldsmithError, match=r"there is no .*none\.asc"):
        project.lock()
    assert not (project.image / "image.lock").exists()


def test_packages_stay_until_they_are_asked_to_move(project: Project) -> None:
    first = project.versions()
    project.base.publish([*BASE, Deb("editor", "2.0", fields={"Depends": "libedit (>= 2.0)"}), Deb("libedit", "2.0"),
                          Deb("libedit", "1.5"), Deb("apt", "3.0.5"), Deb("libnccl2", "2.19.0-1")])  # fmt: skip
    assert project.versions() == first, "a lock that fits is kept"
    project.define("packages: [editor]", "packages: [editor, libedit]")
    assert project.versions() == first, "what image.yml doesn't move stays"
    assert project.versions(upgrade=["nccl"]) == {**first, "libnccl2": "2.19.0-1"}
    # editor's upgrade forces libedit, and nothing else
    assert project.versions(upgrade=["editor"]) == {**first, "libnccl2": "2.19.0-1", "editor": "2.0", "libedit": "2.0"}
    assert project.versions(refresh=True)["apt"] == "3.0.5"
    with pytest.raises(GoldsmithError, match="no package, family or Python project edtor") as caught:
        project.lock(upgrade=["edtor"])
    assert "editor" in caught.value.hint


def test_a_version_that_left_its_repository(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = project.lock()
    project.cuda.publish([one for one in CUDA if "550.144" not in one.version or "driver" not in one.name])
    verdicts = check_lock(project.root, project.image)
    assert max(one.severity for one in verdicts) == Severity.WARN
    [told] = [one.what for one in verdicts if one.severity == Severity.WARN]
    assert "cuda no longer has nvidia-driver-550-open 550.144.03-0ubuntu1 (now: 550.163.01-0ubuntu1)" in told
    assert "the pool has it" in told
    # the lock still fills from the pool, and stays as it is
    assert project.lock() == lock
    locking.fill(project.root, lock)
    Pool(project.root / ".goldsmith").path(lock.packages["nvidia-driver-550-open"]).unlink()
    assert max(one.severity for one in check_lock(project.root, project.image)) == Severity.FAIL
    with pytest.raises(GoldsmithError, match=r"no longer have nvidia-driver-550-open 550\.144\.03-0ubuntu1"):
        locking.fill(project.root, lock)
    assert [one.severity for one in check_lock(project.root, project.image, offline=True)] == [Severity.OK]

    def unreachable(*_: object) -> None:
        raise GoldsmithError("the repositories can't be reached")

    monkeypatch.setattr(checking_module, "repositories", unreachable)
    assert max(one.severity for one in check_lock(project.root, project.image)) == Severity.UNKNOWN


def test_a_rebuild_under_the_same_version_is_another_package(project: Project) -> None:
    project.lock()
    again = Deb("libnvidia-compute-550", "550.144.03-0ubuntu1", "nvidia-graphics-drivers-550", {"Section": "libs"})
    project.cuda.publish([again if (one.name, one.version) == (again.name, again.version) else one for one in CUDA])
    told = [one.what for one in check_lock(project.root, project.image) if one.severity == Severity.WARN]
    assert len(told) == 1 and "other content under the same version" in told[0]


@pytest.mark.parametrize("damage", ["flip", "swap"])
def test_a_damaged_deb_is_named_and_refused(project: Project, damage: str) -> None:
    lock = project.lock()
    pool = Pool(project.root / ".goldsmith")
    path = pool.path(lock.packages["libnvidia-compute-550"])
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    else:
        content = bytearray(pool.path(lock.packages["editor"]).read_bytes())
    path.write_bytes(content)
    with pytest.raises(GoldsmithError, match=r"libnvidia-compute-550 550\.144\.03"):
        locking.verify(project.root, lock)
    locking.fill(project.root, lock, verify=True)
    locking.verify(project.root, lock)


def test_what_is_wrong_with_an_own_repository_names_it(project: Project) -> None:
    root, fingerprint = project.cuda.root, project.cuda.key.fingerprint
    again = f"  again:\n    uri: file:{root}\n    suites: [/]\n    key:\n      fingerprint: {fingerprint}\n"
    project.define("repositories:\n", f"repositories:\n{again}      url: file://{root}/key.asc\n")
    with pytest.raises(GoldsmithError, match="repository again once more") as caught:
        project.lock()
    assert "repositories.cuda" in caught.value.where and "image.yml:1" in caught.value.where
    project.define()
    (project.cuda.root / "InRelease").unlink()
    (project.cuda.root / "Release").unlink()
    with pytest.raises(GoldsmithError, match="repository cuda") as caught:
        project.lock()
    assert "repositories.cuda" in caught.value.where and "debian-archive-keyring" not in str(caught.value)


def test_a_key_is_asked_for_each_time_and_kept_for_when_nobody_answers(project: Project) -> None:
    project.lock()
    kept = project.root / f".goldsmith/apt/keys/{project.cuda.key.fingerprint}.asc"
    kept.write_text("an old one")
    project.lock(refresh=True)
    assert "BEGIN PGP" in kept.read_text(), "a key whose life was extended has the same fingerprint"
    (project.cuda.root / "key.asc").unlink()
    project.lock(refresh=True)
    # a file beside image.yml that isn't there fails here as it would on another machine
    project.define(key="file: none.asc")
    with pytest.raises(GoldsmithError, match=r"none\.asc"):
        project.lock(refresh=True)
