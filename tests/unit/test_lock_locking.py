"""Locking as a whole, with the real apt, on a small signed repository in a folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.lock import fill, filling, lock_image, locking, verify
from goldsmith.lock import pool as pool_module
from goldsmith.lock.apt import Apt
from goldsmith.lock.index import read_stanzas
from goldsmith.lock.pool import Pool
from goldsmith.lock.serve import serving
from goldsmith.lock.sources import Source
from goldsmith.model.lock import Lock, read_lock
from tests.unit.lock_debs import Deb, Repository, needs_apt

pytestmark = needs_apt

IMAGE = """\
schema: 1
name: tiny
base:
  distribution: debian
  release: trixie
  suites: [trixie]
  packages: [editor]
families:
  gpu:
    version: 550.1.0
    packages:
      - libgpu1
roles: []
"""
LIBRARY = b"\x7fELF, or so"
DEBS = [
    Deb("base-tiny", fields={"Essential": "yes"}),
    Deb("apt", "3.0.4"),
    Deb("editor", "1:2.0~rc1-1", fields={"Depends": "libedit", "Recommends": "spellchecker"}),
    Deb("libedit"),
    Deb("spellchecker"),
    Deb("libgpu1", "550.1.0-1", "gpu-drivers", {"Depends": "gpu-common (= 550.1.0-1)"},
        {"/lib/x86_64-linux-gnu/libgpu.so.550.1.0": LIBRARY, "/usr/share/doc/libgpu1/x": b"x"}),
    Deb("libgpu1", "550.1.0-2", "gpu-drivers", {"Depends": "gpu-common"},
        {"/lib/x86_64-linux-gnu/libgpu.so.550.1.0": LIBRARY}),
    Deb("libgpu1", "570.9.0-1", "gpu-drivers", {"Depends": "gpu-common"}),
    Deb("gpu-common", "550.1.0-2", "gpu-drivers"),
    Deb("gpu-common", "570.9.0-1", "gpu-drivers"),
]  # fmt: skip


class Project:
    def __init__(self, root: Path, repository: Repository) -> None:
        self.root, self.repository = root, repository
        self.image = root / "images/tiny"
        self.image.mkdir(parents=True)
        (root / "roles").mkdir()
        self.define(IMAGE)
        self.pool = Pool(root / ".goldsmith")

    def define(self, text: str) -> None:
        (self.image / "image.yml").write_text(text)

    def lock(self, *, refresh: bool = False) -> Lock:
        return lock_image(self.root, self.image, refresh=refresh)[0]

    def listed(self) -> dict[str, str]:
        text = (self.pool.root / "dists/tiny/main/binary-amd64/Packages").read_text()
        return {one["Package"]: one["Version"] for one in read_stanzas(text)}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repository = Repository(tmp_path_factory.mktemp("mirror"))
    repository.publish(DEBS)
    return repository


@pytest.fixture
def project(tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delenv("GOLDSMITH_STATE", raising=False)
    monkeypatch.setattr(locking, "require_tools", lambda: None)
    for module in (locking, filling):
        monkeypatch.setattr(module, "sources_of", lambda *_: ([repository.source()], "a test's repository"))
    return Project(tmp_path / "a project", repository)


def test_a_lock_from_nothing(project: Project) -> None:
    lock = project.lock()
    assert {name: one.version for name, one in lock.packages.items()} == {
        "apt": "3.0.4", "base-tiny": "1.0-1", "editor": "1:2.0~rc1-1", "gpu-common": "550.1.0-2",
        "libedit": "1.0-1", "libgpu1": "550.1.0-2",
    }  # fmt: skip
    assert {name: one.why for name, one in lock.packages.items()} == {
        "apt": "base", "base-tiny": "base", "editor": "base", "gpu-common": "needed by libgpu1",
        "libedit": "needed by editor", "libgpu1": "family gpu",
    }  # fmt: skip
    # the same source's other package moves with the family, although nobody named it
    assert {name for name, one in lock.packages.items() if one.family == "gpu"} == {"gpu-common", "libgpu1"}
    assert list(lock.packages["libgpu1"].files) == ["/usr/lib/x86_64-linux-gnu/libgpu.so.550.1.0"]
    assert lock.packages["libgpu1"].files["/usr/lib/x86_64-linux-gnu/libgpu.so.550.1.0"].size == len(LIBRARY)
    assert lock.packages["editor"].origin == "Debian:13.2/stable"
    assert list(lock.repositories["base"].releases) == ["trixie"] and lock.version("libgpu1") == "550.1.0"
    assert read_lock(project.image) == lock
    # the pool's index has exactly the lock, and neither names the mirror or this machine
    assert project.listed() == {name: one.version for name, one in lock.packages.items()}
    assert str(project.repository.root) not in lock.to_text()
    assert (project.pool.state / "pool-key").stat().st_mode & 0o777 == 0o700
    assert (project.pool.state / "pool-key/secret.asc").stat().st_mode & 0o777 == 0o600
    assert not project.pool.incoming.exists()
    verify(project.root, lock)


def test_a_lock_that_fits_is_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    first = project.lock()
    written = (project.image / "image.lock").stat().st_mtime_ns

    def no_mirror(*_: object) -> None:
        raise AssertionError("a lock that fits asks no mirror")

    for module in (locking, filling):
        monkeypatch.setattr(module, "sources_of", no_mirror)
    project.define(IMAGE + "description: other words\nvariables: {x: 1}\n")
    assert project.lock() == first
    assert (project.image / "image.lock").stat().st_mtime_ns == written


def test_what_is_asked_for_decides_whether_a_lock_fits(project: Project) -> None:
    project.lock()
    project.define(IMAGE.replace("[editor]", "[editor, spellchecker]"))
    assert "spellchecker" in project.lock().packages
    # with merge markers, or of another version of goldsmith: everything would move, and nobody asked for that
    for content in (b"{}", b"<<<<<<< HEAD\n{", b"\xff\xfe"):
        (project.image / "image.lock").write_bytes(content)
        with pytest.raises(GoldsmithError, match="not a lock") as caught:
            project.lock()
        assert "--refresh" in caught.value.hint
    assert "spellchecker" in project.lock(refresh=True).packages


def test_a_damaged_index_is_told_and_made_anew(project: Project) -> None:
    lock = project.lock()
    index = project.pool.root / "dists/tiny"
    for name in ("InRelease", "main/binary-amd64/Packages", "main/binary-amd64/Packages.xz", "../../goldsmith.asc"):
        path = index / name
        content = path.read_bytes()
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        with pytest.raises(GoldsmithError, match=path.name.split("/")[-1]):
            verify(project.root, lock)
        fill(project.root, lock)
        assert path.read_bytes()[:8] == content[:8]
        verify(project.root, lock)
    shutil.rmtree(index / "main")
    assert project.lock() == lock
    verify(project.root, lock)


def test_a_pin_nobody_has(project: Project) -> None:
    project.define(IMAGE.replace("version: 550.1.0", "version: 550.2.0"))
    with pytest.raises(GoldsmithError) as caught:
        project.lock()
    assert caught.value.where == f"{project.image}/image.yml:10, families.gpu.version"
    assert "550.1.0-2 (Debian:13.2/stable)" in caught.value.hint
    assert not (project.image / "image.lock").exists()


def test_packages_that_exclude_each_other(project: Project) -> None:
    extra = "  common:\n    version: 570.9.0\n    packages: [gpu-common]\n"
    project.define(IMAGE.replace("roles: []", extra + "roles: []").replace("550.1.0", "550.1.0-1"))
    with pytest.raises(GoldsmithError, match=r"gpu-common \(= 550.1.0-1\)") as caught:
        project.lock()
    assert "gpu 550.1.0-1, common 570.9.0" in caught.value.hint


def test_a_family_that_would_be_torn(project: Project) -> None:
    extra = "    versions: {gpu-common: 570.9.0}\n"
    project.define(IMAGE.replace("      - libgpu1\n", "      - libgpu1\n      - gpu-common\n" + extra))
    with pytest.raises(GoldsmithError, match="would be torn"):
        project.lock()


def test_the_pool_is_filled_and_healed(project: Project) -> None:
    lock = project.lock()
    editor, libedit = (project.pool.path(lock.packages[name]) for name in ("editor", "libedit"))
    editor.unlink()
    size = libedit.stat().st_size
    libedit.write_bytes(b"x" * size)  # same size: only a hash tells
    with pytest.raises(GoldsmithError, match=r"2 of 6 .* editor 1:2.0~rc1-1, libedit 1.0-1"):
        verify(project.root, lock)
    fill(project.root, lock)
    assert editor.is_file()
    with pytest.raises(GoldsmithError, match="libedit"):
        verify(project.root, lock)
    fill(project.root, lock, verify=True)
    verify(project.root, lock)


def test_a_deb_that_the_mirror_lost(project: Project) -> None:
    lock = project.lock()
    gone = lock.packages["editor"].model_copy(update={"filename": "pool/main/e/editor/editor_1_amd64.deb"})
    project.pool.path(gone).unlink()
    with pytest.raises(GoldsmithError, match=r"no longer have editor 1:2\.0~rc1-1"):
        fill(project.root, lock.model_copy(update={"packages": {**lock.packages, "editor": gone}}))
    assert project.listed()["editor"] == "1:2.0~rc1-1"


def test_an_index_never_says_other_than_the_lock(project: Project) -> None:
    lock = project.lock()
    path = project.pool.path(lock.packages["libedit"])
    path.write_bytes(project.pool.path(lock.packages["base-tiny"]).read_bytes()[: path.stat().st_size])
    # apt-ftparchive's database knows a file by its time, in whole seconds
    os.utime(path, (2_000_000_000, 2_000_000_000))
    link = project.pool.root / "dists/tiny"
    before = os.readlink(link)
    with pytest.raises(GoldsmithError, match=r"libedit|index the pool"):
        project.pool.publish(lock)
    assert os.readlink(link) == before


def test_a_filename_never_leads_out_of_the_pool(project: Project) -> None:
    lock = project.lock()
    for update in ({"name": "../../x"}, {"version": "1/../../x"}, {"architecture": "/etc"}):
        with pytest.raises(GoldsmithError, match="can't be kept"):
            project.pool.path(lock.packages["apt"].model_copy(update=update))


def test_an_interrupted_publication_leaves_the_old_index(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    old = project.lock()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pool_module, "sign", interrupt)
        project.define(IMAGE.replace("[editor]", "[editor, spellchecker]"))
        with pytest.raises(KeyboardInterrupt):
            project.lock()
    assert read_lock(project.image) == old
    assert "spellchecker" not in project.listed()
    assert [one.name for one in (project.pool.root / "dists").iterdir() if one.name.startswith(".making")] == []
    assert "spellchecker" in project.lock().packages
    # one index an image: the earlier one is swept
    assert len(list((project.pool.root / "dists").iterdir())) == 2


def test_a_lost_key_is_replaced_and_the_packages_stay(project: Project) -> None:
    lock = project.lock()
    for file in (project.pool.state / "pool-key").iterdir():
        file.unlink()
    with pytest.raises(GoldsmithError, match="this pool signs with"):
        fill(project.root, lock)
    again = project.lock()
    assert again.packages == lock.packages and again.pool.fingerprint != lock.pool.fingerprint
    fill(project.root, again)


def test_a_mirror_that_is_signed_by_somebody_else_is_refused(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = project.pool.key()
    keyring = tmp_path / "stranger.asc"
    keyring.write_text(stranger.public)
    source = Source(project.repository.source().uri, "trixie", ("main",), str(keyring))
    for module in (locking, filling):
        monkeypatch.setattr(module, "sources_of", lambda *_: ([source], "a test's repository"))
    with pytest.raises(GoldsmithError, match=project.repository.key.fingerprint[-16:]):
        project.lock()


def test_apt_takes_the_pool_over_http(project: Project, tmp_path: Path) -> None:
    lock = project.lock()
    keyring = tmp_path / "goldsmith.asc"
    keyring.write_text(lock.pool.key)
    with serving(project.pool.root) as port:
        source = Source(f"http://127.0.0.1:{port}/", "tiny", ("main",), str(keyring))
        client = Apt(tmp_path / "client", [source], "amd64")
        client.update(lambda _: None)
        index, releases = client.read()
    assert releases[0].origin == "goldsmith:tiny"
    assert {name: one.version for name, (one,) in index.by_name.items()} == project.listed()
    assert {name: one.sha256 for name, (one,) in index.by_name.items()} == {
        name: one.sha256 for name, one in lock.packages.items()
    }
    assert not (tmp_path / "client/lists/partial").is_dir() or not list((tmp_path / "client/lists/partial").iterdir())


def test_the_command_line(project: Project) -> None:
    from click.testing import CliRunner

    from goldsmith.cli.lock import lock
    from goldsmith.cli.pool import pool

    image = str(project.image)
    missing = CliRunner().invoke(lock, [image, "--check"])
    assert (missing.exit_code, missing.output) == (2, f"{image}/image.lock: this image has no lock yet\n")
    made = CliRunner().invoke(lock, [image])
    assert made.exit_code == 0 and "gpu: 550.1.0-2 (2 packages)" in made.output
    assert CliRunner().invoke(lock, [image, "--check"]).exit_code == 0
    assert CliRunner().invoke(pool, [image]).exit_code == 0
    assert CliRunner().invoke(pool, ["verify", image]).exit_code == 0
    shown = CliRunner().invoke(lock, [image, "--show"])
    assert shown.exit_code == 0 and "name: tiny" in shown.output
    same = CliRunner().invoke(lock, ["diff", image, f"{image}/image.lock"])
    assert same.output == "the same packages and wheels\n"
    project.define(IMAGE.replace("550.1.0", "570.9.0"))
    stale = CliRunner().invoke(lock, [image, "--check"])
    assert stale.exit_code == 2 and "is stale" in stale.output
    moved = CliRunner().invoke(lock, [image])
    assert "libgpu1 550.1.0-2 → 570.9.0-1" in moved.output and "2 upgraded" in moved.output
    for wrong in (["--check", "--refresh"], ["--offline"], ["--show", "--upgrade", "gpu"]):
        assert "can't be asked for together" in CliRunner().invoke(lock, [image, *wrong]).output
    for nowhere in ("nowhere", "HEAD:images/tiny", "--upload-pack=x:y"):
        done = CliRunner().invoke(lock, ["diff", image, nowhere])
        assert done.exit_code != 0 and isinstance(done.exception, (GoldsmithError, SystemExit))
