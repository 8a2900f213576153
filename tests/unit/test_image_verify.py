"""`goldsmith verify`: what is whole, signed and of its lock is OK; nothing else is, a killed build's least of all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from goldsmith.cli import cli
from goldsmith.errors import GoldsmithError
from goldsmith.image import seen, signature, sums
from goldsmith.image.artifact import MANIFEST, read_artifact
from goldsmith.image.publish import PREFIX, publish, staging, steps
from goldsmith.image.verify import severity, verify
from goldsmith.model.finding import Severity
from tests.needs import needs
from tests.unit import make, make_artifact

pytestmark = needs("zstd", "ssh-keygen")
CYCLONEDX = "sbom.cdx.json"
OK, FAIL, UNKNOWN = Severity.OK, Severity.FAIL, Severity.UNKNOWN


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tree, state (with the lab's key), images/lab/image.lock and out, a signed artifact. Not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    make_artifact.tree(folder / "tree")
    key = signature.lab_key(folder / "state")
    (folder / "images/lab").mkdir(parents=True)
    (folder / "images/lab/image.lock").write_text(make.lock().to_text())
    make_artifact.artifact(folder / "tree", folder / "out", key=key)
    return folder


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    """A copy of the artifact, to be spoiled."""
    return Path(shutil.copytree(made / "out", tmp_path / "out", symlinks=True))


def look(made: Path, out: Path) -> tuple[Severity, list[str]]:
    """The verdict, and what isn't OK."""
    checks = verify(out, made / "state/signing/allowed_signers", images=made / "images")
    return severity(checks), [f"{one.name}: {one.text}" for one in checks if one.severity is not OK]


def resign(made: Path, out: Path) -> None:
    """As somebody with the key would who changes what they sign."""
    (out / sums.SUMS).write_text(sums.text(out))
    signature.sign(out, made / "state/signing/key")


def test_a_signed_artifact_is_ok(made: Path) -> None:
    assert look(made, made / "out") == (OK, [])
    checks = verify(made / "out", made / "state/signing/allowed_signers", images=made / "images")
    assert {one.name for one in checks} == {"signature", "files", "manifest", "sbom", "lock"}
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", sums.SUMS], cwd=made / "out", capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert (made / "state/signing/key").stat().st_mode & 0o777 == 0o600


def test_a_changed_byte_in_any_file_is_named(made: Path, out: Path) -> None:
    for path in [*sums.files(out)]:
        content = (out / path).read_bytes()
        middle = len(content) // 2
        spoilt = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        (out / path).unlink()  # an OCI layer may be the rootfs' other name
        (out / path).write_bytes(spoilt)
        verdict, said = look(made, out)
        assert verdict is FAIL and f"files: {path}: changed" in said
        (out / path).write_bytes(content)
    assert look(made, out) == (OK, [])


def test_missing_and_extra_files_are_named(made: Path, out: Path) -> None:
    (out / "oci/index.json").unlink()
    (out / ".hidden").write_text("x")
    (out / "a\x1b[2J").write_text("x")
    (out / "empty").mkdir()
    verdict, said = look(made, out)
    assert verdict is FAIL
    assert said == [
        "files: .hidden: not in SHA256SUMS",
        "files: 'a\\x1b[2J': not in SHA256SUMS",
        "files: empty: not in SHA256SUMS",
        "files: oci/index.json: missing",
    ]


def test_a_link_is_not_followed(made: Path, out: Path, tmp_path: Path) -> None:
    shutil.move(out / CYCLONEDX, tmp_path / "elsewhere")
    (out / CYCLONEDX).symlink_to(tmp_path / "elsewhere")
    verdict, said = look(made, out)
    assert verdict is FAIL and f"files: {CYCLONEDX}: no plain file" in said


def test_a_folder_that_cant_be_listed_isnt_taken_for_an_empty_one(
    made: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (out / "closed").mkdir()
    listing = os.scandir

    def closed(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    monkeypatch.setattr(os, "scandir", closed)  # root may list everything
    with pytest.raises(GoldsmithError, match=r"closed: can't be read: Permission denied"):
        look(made, out)


def test_no_signature_nobody_to_trust_and_no_lock_are_unknown(made: Path, out: Path) -> None:
    checks = verify(out, None, images=made / "images")
    assert severity(checks) is UNKNOWN and "whose signature counts" in checks[0].text
    checks = verify(out, made / "state/signing/allowed_signers", images=made / "none")
    assert severity(checks) is UNKNOWN and "there is no" in checks[-1].text
    (out / sums.SIGNATURE).unlink()
    assert look(made, out)[0] is UNKNOWN
    (out / sums.SUMS).unlink()
    assert look(made, out)[0] is FAIL
    with pytest.raises(GoldsmithError, match="there is no such file"):
        verify(made / "out", made / "nobody")


def test_another_key_another_purpose_and_another_text_fail(made: Path, out: Path, tmp_path: Path) -> None:
    other = signature.lab_key(tmp_path / "other")
    assert signature.signed_by(out, made / "state/signing/key") and not signature.signed_by(out, other)
    signature.sign(out, other)
    assert look(made, out) == (FAIL, [f"signature: not a signature over this {sums.SUMS} by anyone in "
                                      f"{made / 'state/signing/allowed_signers'}"])  # fmt: skip
    resign(made, out)
    assert look(made, out)[0] is OK
    (out / sums.SIGNATURE).unlink()
    argv = ["ssh-keygen", "-q", "-Y", "sign", "-f", made / "state/signing/key", "-n", "git", out / sums.SUMS]
    subprocess.run(argv, check=True, timeout=60, capture_output=True)
    assert look(made, out)[0] is FAIL
    resign(made, out)
    (out / "more").write_text("x")
    (out / sums.SUMS).write_text(sums.text(out))  # right, and signed by nobody
    assert look(made, out)[0] is FAIL


def test_papers_that_disagree_fail_whoever_signed_them(made: Path, out: Path) -> None:
    document = json.loads((out / CYCLONEDX).read_text())
    gone, changed, *_ = document["components"]
    document["components"].remove(gone)
    changed["version"] = "0"
    document["components"].append({**changed, "bom-ref": "pkg:deb/debian/more@1"})
    (out / CYCLONEDX).write_text(json.dumps(document))
    resign(made, out)
    verdict, said = look(made, out)
    assert verdict is FAIL
    assert f"sbom: {CYCLONEDX}: {gone['bom-ref']} is in the manifest and not in the SBOM" in said
    assert f"sbom: {CYCLONEDX}: pkg:deb/debian/more@1 is in the SBOM and not in the manifest" in said
    assert any("is another one in the SBOM" in one for one in said)
    (out / "oci/index.json").unlink()
    shutil.rmtree(out / "oci")
    (out / MANIFEST).write_text("{}")
    resign(made, out)
    assert any(one.startswith(f"manifest: {MANIFEST}: not a manifest") for one in look(made, out)[1])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", "../../etc"),
        ("formats", {"rootfs": {"file": "/etc/passwd", "size": 1, "sha256": "0" * 64}}),
        ("packages", {"": {}}),
        ("schema", 1),
        ("more", 1),
    ],
)
def test_a_manifest_from_anywhere_leads_nowhere(made: Path, out: Path, field: str, value: object) -> None:
    manifest = json.loads((out / MANIFEST).read_text())
    (out / MANIFEST).write_text(json.dumps({**manifest, field: value}))
    resign(made, out)
    verdict, said = look(made, out)
    assert verdict is FAIL and len(said) == 1 and f"({field}" in said[0]


def test_a_format_that_is_gone_with_its_sums_is_missed(made: Path, out: Path) -> None:
    shutil.rmtree(out / "oci")
    resign(made, out)
    verdict, said = look(made, out)
    assert verdict is FAIL and said[0].startswith("manifest: oci: oci/blobs/sha256/")


def test_another_lock_fails_and_names_the_package(made: Path, out: Path, tmp_path: Path) -> None:
    packages = {**make.PACKAGES, "chrony": ("4.7-1", "chrony", None)}
    (tmp_path / "image.lock").write_text(make.lock(packages).to_text())
    checks = verify(out, made / "state/signing/allowed_signers", lock=tmp_path / "image.lock")
    said = [one.text for one in checks if one.severity is FAIL]
    assert said[0].startswith("built from lock") and "package chrony is 4.6.1-3, and 4.7-1 is locked" in said[1]


@pytest.mark.parametrize("line", ["x", f"{'0' * 64}  /etc/passwd", f"{'0' * 64}  oci/../../x", f"{'0' * 64} *x"])
def test_sums_name_files_of_the_folder_alone(line: str) -> None:
    with pytest.raises(GoldsmithError, match="not a line"):
        sums.parse(line.encode(), "SHA256SUMS")


@pytest.mark.parametrize("before", [False, True], ids=["nothing before", "an older artifact"])
def test_a_build_that_is_killed_at_any_moment_leaves_nothing_that_verify_accepts(
    made: Path, tmp_path: Path, before: bool
) -> None:
    """Every step of publishing is the last one, in turn; a killed process runs no `finally`."""
    old, new = tmp_path / "old", tmp_path / "new"
    key = made / "state/signing/key"
    if before:
        make_artifact.artifact(make_artifact.tree(tmp_path / "tree", stamp=1_500_000_000), old, key=key)
    new.mkdir()
    make_artifact.stage(made / "tree", new, key=key)
    number, whole = 0, False
    while not whole:
        out = tmp_path / f"out{number}"
        if before:
            shutil.copytree(old, out)
        folder = Path(shutil.copytree(new, out / f"{PREFIX}x"))
        todo = steps(folder, out)
        for one in todo[:number]:
            one()
        if whole := number == len(todo):
            folder.rmdir()
            assert look(made, out) == (OK, [])
        elif any((out / name).is_file() for name in (MANIFEST, sums.SUMS)):
            assert look(made, out)[0] is not OK, number
        else:
            with pytest.raises(GoldsmithError, match="there is no built image here"):
                look(made, out)
        with staging(out) as folder:  # and the next build works
            shutil.copytree(new, folder, dirs_exist_ok=True)
            publish(folder, out)
        assert look(made, out) == (OK, [])
        number += 1
    assert number > 10


def test_sigkill_while_staging_leaves_the_old_artifact_and_the_next_build_clears_up(made: Path, out: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from goldsmith.image.publish import staging\n"
        "with staging(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'half').write_text('x'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, out], timeout=60)
    assert done.returncode == -9
    verdict, said = look(made, out)
    assert verdict is FAIL and len(said) == 1 and "half: not in SHA256SUMS" in said[0]
    with staging(out) as folder:
        assert [path.name for path in out.glob(f"{PREFIX}*")] == [folder.name]
    assert look(made, out) == (OK, [])


def test_a_full_disk_while_publishing_is_told_and_leaves_no_signature(
    made: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staging(out) as folder:
        make_artifact.stage(made / "tree", folder, key=made / "state/signing/key")

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "rename", full)
        with pytest.raises(GoldsmithError, match="No space left"):
            publish(folder, out)
    assert not (out / sums.SIGNATURE).exists()


def test_what_was_read_once_isnt_read_again_until_it_changes(out: Path, tmp_path: Path) -> None:
    record = tmp_path / "seen.json"
    assert not seen.unchanged(record, out)
    seen.remember(record, out)
    assert seen.unchanged(record, out)
    rootfs = out / "rootfs.tar.zst"
    status = rootfs.stat()
    content = rootfs.read_bytes()
    rootfs.write_bytes(content[:-1] + b"x")
    os.utime(rootfs, ns=(status.st_atime_ns, status.st_mtime_ns))  # the size and the time of before
    assert not seen.unchanged(record, out)
    assert read_artifact(out, verify=False).image == "lab"
    with pytest.raises(GoldsmithError, match="isn't what"):
        read_artifact(out)


def test_the_verb(made: Path, out: Path, tmp_path: Path) -> None:
    lock = ["--lock", str(made / "images/lab/image.lock")]
    allowed = ["--allowed-signers", str(made / "state/signing/allowed_signers")]
    for words, spoil, code in ((allowed, False, 0), ([], False, 3), (allowed, True, 2)):
        if spoil:
            (out / MANIFEST).write_text((out / MANIFEST).read_text() + " ")
        done = CliRunner().invoke(cli, ["verify", str(out), *lock, *words, "--format", "json"], standalone_mode=False)
        assert done.return_value == code, done.output
        document = json.loads(done.stdout)
        assert document["severity"] == Severity(code).name
    with pytest.raises(GoldsmithError, match="there is no built image here"):
        CliRunner().invoke(cli, ["verify", str(tmp_path)], standalone_mode=False, catch_exceptions=False)
