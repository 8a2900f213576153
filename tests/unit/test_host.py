"""The machine: each check answers in one sentence that says what to do, before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldsmith import host
from goldsmith.errors import GoldsmithError

MOUNTS = """\
1 0 8:1 / / rw - ext4 /dev/vda rw
2 1 0:5 / /data rw - nfs4 server:/x rw
3 1 0:6 / /data\\040two rw - xfs /dev/vdb rw
4 2 0:7 / /data/over rw - overlay overlay rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/x", "ext4"),
        ("/data/x", "nfs4"),
        ("/data two/x", "xfs"),
        ("/data/over", "overlay"),
        ("/database", "ext4"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str) -> None:
    assert host.file_system(Path(path), MOUNTS) == kind


def test_missing_tools_are_named_with_the_line_that_installs_them() -> None:
    tools = {"sh": "dash", "no-such-tool": "its-package", "/no/such/file": "another"}
    assert host.missing_packages(tools) == {"no-such-tool": "its-package", "/no/such/file": "another"}
    with pytest.raises(GoldsmithError) as error:
        host.require_tools(tools, install=False)
    assert "no-such-tool" in error.value.what
    assert "apt-get install another its-package" in error.value.hint
    assert error.value.exit_code == 4


def test_an_ordinary_user_is_told_to_be_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(GoldsmithError, match="needs root"):
        host.require_root("the lab")
    with pytest.raises(GoldsmithError, match="lacks no-such-tool"):
        host.require_tools({"no-such-tool": "x"})


def test_too_little_disk_is_told_with_both_figures(tmp_path: Path) -> None:
    host.require_disk(tmp_path / "not/yet/there", 0, "nothing")
    with pytest.raises(GoldsmithError, match=r"needs 1e\+06 GiB, there are \d") as error:
        host.require_disk(tmp_path, 1e6, "the lab")
    assert "GOLDSMITH_STATE" in error.value.hint


def test_an_overlay_upon_an_overlay_is_refused_before_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "file_system", lambda *_: "overlay")
    with pytest.raises(GoldsmithError, match="can't lie on overlay") as error:
        host.require_overlay(tmp_path)
    assert "GOLDSMITH_STATE" in error.value.hint
    assert list(tmp_path.iterdir()) == []


def test_apt_get_is_tried_again_after_an_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fake: an apt-get that knows the package only after `update`, which is what a fresh machine's does."""
    fake = tmp_path / "apt-get"
    fake.write_text(
        f'#!/bin/sh\ncase "$*" in *update) touch {tmp_path}/updated;; '
        f"*) [ -e {tmp_path}/updated ] || exit 100; touch {tmp_path}/new-tool; chmod +x {tmp_path}/new-tool;; esac\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert host.require_tools({"new-tool": "new-package"}) == ["new-package"]
    assert host.require_tools({"new-tool": "new-package"}) == []
