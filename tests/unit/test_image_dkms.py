"""Kernel modules of an image, without a compiler: what is read of sources, their order, the key, patches, the verdict.

tests/lab/test_dkms.py has the real dkms.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from goldsmith.errors import GoldsmithError, Refused
from goldsmith.image import dkms
from goldsmith.image.dkms import Source, Works, build_modules, in_order, key, parse_list, put_patches
from goldsmith.image.dkms_cache import ModuleCache
from goldsmith.image.dkms_log import LONGEST, reason
from goldsmith.image.tree import Tree
from goldsmith.lock.patches import PatchText
from goldsmith.model.lock import Lock, LockedPatch
from goldsmith.process import Done
from tests.unit import make

DATA = Path(__file__).parents[1] / "data/dkms"
KERNEL = "6.12.117+deb13-cloud-amd64"
NVIDIA = Source("nvidia-tesla-535", "535.274.02", "/usr/src/nvidia-tesla-535-535.274.02", "a1", True)
PATCH = "--- a/x.c\n+++ b/x.c\n@@ -1 +1 @@\n-a\n+b\n"


def lock(**more: Any) -> Lock:
    packages: dict[str, tuple[str, str, str | None]] = {
        **make.PACKAGES,
        "gcc-14": ("14.2.0-19", "gcc-14", None),
        f"linux-headers-{KERNEL}": ("6.12.117-1", "linux-signed-amd64", "kernel"),
    }
    return make.lock(packages).model_copy(update={"kernel": KERNEL, **more})


def patch(module: str = "hello", file: str = "patches/x.patch", text: str = PATCH) -> PatchText:
    return PatchText(LockedPatch(module=module, file=file, sha256="0" * 64), text.encode(), "image.yml:9")


# --- the list


def test_what_the_tree_says_of_its_sources() -> None:
    text = (
        "settings|5e\nsource|/usr/src/a-1\nmodule|/usr/src/a-1|a|1|yes|b c|aa\n"
        "source|/usr/src/b-2\nmodule|/usr/src/b-2|b|2|||bb\n"
        "source|/usr/src/c-3\nmodule|/usr/src/c-3|c|3|No||cc\n"
    )
    settings, sources = parse_list(text, "images/lab")
    assert settings == "5e"
    assert sources == [
        Source("a", "1", "/usr/src/a-1", "aa", True, ("b", "c")), Source("b", "2", "/usr/src/b-2", "bb", False),
        Source("c", "3", "/usr/src/c-3", "cc", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("module|/usr/src/x|../../etc|1|yes||aa", "not a module's"),
        ("module|/usr/src/x|x|1/../..|yes||aa", "not a module's"),
        ("module|/usr/src/x|x|1|yes|../b|aa", "not a module's"),
        ("module|/usr/src/x||1|yes||aa", "not a module's"),
        ("module|/usr/src/x|-x|1|yes||aa", "not a module's"),
        ("module|/usr/src/x|a|b|1|yes||aa", "can't be read"),
        ("tar: /etc/dkms: no such folder", "can't be read"),
        ("source|/usr/src/x", "the shell ends in it"),
    ],
)
def test_a_source_that_isnt_one_is_an_error_and_not_left_out(line: str, said: str) -> None:
    with pytest.raises(GoldsmithError, match=said):
        parse_list(f"settings|5e\n{line}\n", "images/lab")


def test_each_module_behind_those_that_it_needs() -> None:
    def one(name: str, *needs: str) -> Source:
        return Source(name, "1", f"/usr/src/{name}-1", "d", True, needs)

    def names(*sources: Source) -> list[str]:
        return [source.module for source in in_order(sources)]

    assert names(one("c"), one("a", "b", "c"), one("b", "c")) == ["c", "b", "a"]
    assert names(one("b"), one("a")) == ["a", "b"]
    assert names(one("a", "not-here", "a")) == ["a"]
    assert names(one("a", "b"), one("b", "a"), one("c")) == ["c", "a", "b"]  # a circle; dkms says so
    assert names() == []


# --- the key


def change_package(name: str, **fields: Any) -> Callable[[], str]:
    def changed() -> str:
        packages = lock().packages
        one = packages[name].model_copy(update=fields)
        return key(lock(packages={**packages, name: one}), KERNEL, NVIDIA, [NVIDIA], "s")

    return changed


def same() -> str:
    return key(lock(), KERNEL, NVIDIA, [NVIDIA], "s")


@pytest.mark.parametrize(
    "other",
    [
        lambda: key(lock(), "6.12.107", NVIDIA, [NVIDIA], "s"),
        lambda: key(lock(), KERNEL, NVIDIA, [NVIDIA], "other settings"),
        lambda: key(lock(architecture="arm64"), KERNEL, NVIDIA, [NVIDIA], "s"),
        lambda: key(lock(), KERNEL, NVIDIA, [Source("nvidia-tesla-535", "535.274.02", NVIDIA.folder, "a2", True)], "s"),
        lambda: key(lock(), KERNEL, NVIDIA, [NVIDIA, Source("ofed", "1", "/usr/src/ofed-1", "b", False)], "s"),
        change_package("gcc-14", version="14.2.0-20"),
        change_package("gcc-14", sha256="1" * 64),
        change_package(f"linux-headers-{KERNEL}", sha256="1" * 64),
    ],
)
def test_another_source_kernel_or_compiler_is_another_module(other: Callable[[], str]) -> None:
    assert other() != same()


def test_other_packages_are_the_same_module() -> None:
    assert change_package("libnccl2", version="2.23.4-1")() == same()


# --- patches


def test_patches_are_put_where_dkms_looks_for_them(tmp_path: Path) -> None:
    source = Source("hello", "1.0", "/usr/src/hello-1.0", "d", True)
    other = Source("other", "1.0", "/usr/src/other-1.0", "d", True)
    conf = tmp_path / "etc/dkms/hello-1.0.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text("AUTOINSTALL=yes")
    with Tree(tmp_path) as tree:
        put_patches(tree, [source, other], [patch(), patch(file="y.patch")])
    assert (tmp_path / "usr/src/hello-1.0/patches/x.patch").read_text() == PATCH
    assert (tmp_path / "usr/src/hello-1.0/patches/y.patch").read_text() == PATCH
    lines = [line for line in conf.read_text().splitlines() if not line.startswith("#")]
    assert lines == ["AUTOINSTALL=yes", 'PATCH+=("x.patch")', 'PATCH+=("y.patch")']
    assert not (tmp_path / "usr/src/other-1.0").exists() and len(list(conf.parent.iterdir())) == 1


def test_a_patch_never_replaces_the_packages_own(tmp_path: Path) -> None:
    own = tmp_path / "usr/src/hello-1.0/patches/x.patch"
    own.parent.mkdir(parents=True)
    own.write_text("the package's")
    with (
        Tree(tmp_path) as tree,
        pytest.raises(GoldsmithError, match=r"image\.yml:9.*comes with a patch named x\.patch"),
    ):
        put_patches(tree, [Source("hello", "1.0", "/usr/src/hello-1.0", "d", True)], [patch()])
    assert own.read_text() == "the package's"


@pytest.mark.parametrize("trap", ["usr/src/hello-1.0", "usr/src/hello-1.0/patches", "etc/dkms", "usr/src", "etc"])
def test_a_link_in_the_tree_leads_a_patch_nowhere_outside(tmp_path: Path, trap: str) -> None:
    outside, root = tmp_path / "outside", tmp_path / "tree"
    for name in ("patches", "hello-1.0/patches", "dkms"):
        (outside / name).mkdir(parents=True)
    before = sorted(outside.rglob("*"))
    (root / trap).parent.mkdir(parents=True)
    (root / trap).symlink_to(outside)
    with Tree(root) as tree, pytest.raises(GoldsmithError, match="isn't followed"):
        put_patches(tree, [Source("hello", "1.0", "/usr/src/hello-1.0", "d", True)], [patch()])
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize("trap", ["etc/dkms/hello-1.0.conf", "usr/src/hello-1.0/patches/x.patch"])
def test_nor_does_a_link_in_a_files_place(tmp_path: Path, trap: str) -> None:
    victim, root = tmp_path / "victim", tmp_path / "tree"
    victim.write_text("mine")
    (root / trap).parent.mkdir(parents=True)
    (root / trap).symlink_to(victim)
    source = Source("hello", "1.0", "/usr/src/hello-1.0", "d", True)
    with Tree(root) as tree:
        try:
            put_patches(tree, [source], [patch()])
        except GoldsmithError:
            assert trap.endswith(".patch")
    assert victim.read_text() == "mine"


# --- what a build said


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("nvidia-open-550-make.log",
         "/var/lib/dkms/nvidia-current-open/550.163.01/build/nvidia/nv-pci.c:237:9: error: too few arguments to "
         "function ‘pci_resize_resource’"),
        ("patch-failed-make.log", "hello.patch: hello.c: Hunk #1 FAILED at 15."),
        ("no-such-function-make.log",
         'ERROR: modpost: "not_there" [/var/lib/dkms/hello/1.0/build/hello.ko] undefined!'),
    ],
)  # fmt: skip
def test_the_line_that_tells_why(log: str, said: str) -> None:
    assert reason((DATA / log).read_text()) == said


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", ""),
        ("\n \n", ""),
        ("a\nb\n", "b"),
        ("/bin/sh: 1: flex: not found\nmake: *** [Makefile:3: x] Error 127\n", "make: *** [Makefile:3: x] Error 127"),
        ("sh: 1: flex: not found\ndone\n", "sh: 1: flex: not found"),
        ("x.c:1: warning: error-prone: y\nx.c:2:1: fatal error: no.h: No such file\n",
         "x.c:2:1: fatal error: no.h: No such file"),
        ("Error! Your kernel headers for kernel 6 cannot be found at /lib/modules/6/build.\nmore\n",
         "Error! Your kernel headers for kernel 6 cannot be found at /lib/modules/6/build."),
        ("error: " + "x" * 9999, ("error: " + "x" * 9999)[:LONGEST]),
    ],
)  # fmt: skip
def test_or_the_last_that_was_said(log: str, said: str) -> None:
    assert reason(log) == said


def test_dkms_words_count_where_the_log_has_no_reason() -> None:
    log = "DKMS make.log for hello/1.0\n# command: true\n\n# exit code: 0\n# elapsed time: 00:00:00\n-----------\n"
    said = "Building module(s)... done.\n\nError! Build of hello.ko failed for: 6.12 (x86_64)\nMake sure\n"
    assert reason(log, said) == "Error! Build of hello.ko failed for: 6.12 (x86_64)"
    assert reason(log, "") == "# command: true"
    assert reason("x.c:1: error: y", said) == "x.c:1: error: y"


def test_a_hunks_line_says_of_which_patch_and_file() -> None:
    log = (
        "# command: patch -p1 < ./patches/first.patch\npatching file a.c\nHunk #1 succeeded at 9 (offset 2 lines).\n"
        "# command: patch -p1 < ./patches/second.patch\npatching file b.c\npatching file c.c\nHunk #2 FAILED at 8.\n"
    )
    assert reason(log) == "second.patch: c.c: Hunk #2 FAILED at 8."
    assert reason("can't find file to patch at input line 3\n") == "can't find file to patch at input line 3"


# --- all of it, with a fake dkms


class FakeDkms:
    """Answers what build_modules runs in the tree, and does to the tree what dkms would."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.listed = "settings|5e\nsource|/usr/src/hello-1.0\nmodule|/usr/src/hello-1.0|hello|1.0|yes||aa\n"
        self.built: dict[str, str] = {"x86_64/module/hello.ko.xz": "a module", "x86_64/log/make.log": "Thursday"}
        self.build, self.log, self.looked = Done((), 0, "", ""), "", ""
        self.told: list[Mapping[str, str]] = []

    def __call__(self, tree: Path, command: list[str], *, env: Mapping[str, str], **_: object) -> Done:
        script = command[2]
        name = next(name for name in ("_LIST", "_ADD", "_BUILD", "_INSTALL", "_LOOK", "_INITRD")
                    if getattr(dkms, name) == script)  # fmt: skip
        self.ran.append(name.strip("_").lower())
        self.told.append(env)
        if name == "_BUILD":
            assert (tree / dkms.FRAMEWORK[1:]).is_file()
            module, version, kernel = command[4:]
            base = tree / f"var/lib/dkms/{module}/{version}"
            files = {f"{kernel}/{path}": text for path, text in self.built.items()}
            if self.build.code:
                files = {"build/make.log": self.log} if self.log else {}
            for path, text in files.items():
                (base / path).parent.mkdir(parents=True, exist_ok=True)
                (base / path).write_text(text)
            return self.build
        return Done((), 0, {"_LIST": self.listed, "_LOOK": self.looked}.get(name, ""), "")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDkms:
    one = FakeDkms()
    monkeypatch.setattr(dkms, "run_in_tree", one)
    return one


def works(state: Path, name: str = "tree", **more: Any) -> Works:
    source = state / name / "usr/src/hello-1.0"
    source.mkdir(parents=True)
    (source / "dkms.conf").write_text("")
    return Works(state / name, lock(**more), ModuleCache(state / "dkms", state), state / "build", 1764547200)


def test_a_module_is_built_once_and_taken_from_the_cache_then(tmp_path: Path, fake: FakeDkms) -> None:
    first = works(tmp_path)
    assert build_modules(first, []) == 1
    assert fake.ran == ["list", "list", "add", "build", "install", "look", "initrd"]
    assert fake.told[-1]["SOURCE_DATE_EPOCH"] == "1764547200" != fake.told[-2]["SOURCE_DATE_EPOCH"]
    assert not (first.tree / dkms.FRAMEWORK[1:]).exists()
    base = f"var/lib/dkms/hello/1.0/{KERNEL}/x86_64"
    assert [path.name for path in (first.tree / base).iterdir()] == ["module"]  # no log: it has times in it
    fake.ran.clear()
    second = works(tmp_path, "again")
    assert build_modules(second, []) == 1
    assert fake.ran == ["list", "list", "add", "install", "look", "initrd"]
    assert (second.tree / base / "module/hello.ko.xz").read_text() == "a module"


def test_a_damaged_entry_is_built_anew(tmp_path: Path, fake: FakeDkms, capsys: pytest.CaptureFixture[str]) -> None:
    build_modules(works(tmp_path), [])
    kept = next((tmp_path / "dkms").rglob("hello.ko.xz"))
    kept.write_text("another module")
    fake.ran.clear()
    again = works(tmp_path, "again")
    build_modules(again, [])
    assert "build" in fake.ran and "was changed" in " ".join(capsys.readouterr().err.split())
    assert next((tmp_path / "dkms").rglob("hello.ko.xz")).read_text() == "a module"


def test_nothing_is_done_without_modules(tmp_path: Path, fake: FakeDkms) -> None:
    one = works(tmp_path)
    (one.tree / "usr/src/hello-1.0/dkms.conf").unlink()
    # as Debian's link to the kernel's programs; nothing is looked for behind it
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/dkms.conf").touch()
    (one.tree / "usr/src/linux-kbuild").symlink_to(tmp_path / "elsewhere")
    assert build_modules(one, []) == 0 and not fake.ran
    with pytest.raises(Refused, match=r"patches the module hello, which the image hasn't got: .* are none"):
        build_modules(one, [patch()])


def test_modules_that_nobody_asked_for_arent_built(tmp_path: Path, fake: FakeDkms) -> None:
    fake.listed = fake.listed.replace("|yes|", "||")
    assert build_modules(works(tmp_path), []) == 0 and fake.ran == ["list", "list"]


def test_an_image_without_a_kernel(tmp_path: Path, fake: FakeDkms) -> None:
    with pytest.raises(Refused, match="no kernel to build them for"):
        build_modules(works(tmp_path, kernel=None), [])
    assert not fake.ran


def refusal(one: Works, *patches: PatchText) -> str:
    with pytest.raises(Refused) as caught:
        build_modules(one, patches)
    assert not (one.tree / dkms.FRAMEWORK[1:]).exists()
    assert not (tmp := one.cache.root).exists() or not list(tmp.iterdir())
    return str(caught.value)


def test_a_module_that_doesnt_build(tmp_path: Path, fake: FakeDkms) -> None:
    fake.build, fake.log = Done((), 10, "Error! Bad return status", ""), "x.c:1:2: error: no\nmake: *** Error 2\n"
    one = works(tmp_path)
    said = refusal(one)
    assert f"images/lab: module hello 1.0 doesn't build for kernel {KERNEL}:\n  x.c:1:2: error: no\n" in said
    assert "known to build for" in said and "nvidia-tesla-535-kernel-dkms 535.274.02" in said
    log = tmp_path / "build/lab.hello-1.0.make.log"
    assert str(log) in said and log.read_text() == fake.log
    # once it builds, the log of before isn't left to mislead
    fake.build = Done((), 0, "", "")
    build_modules(works(tmp_path, "again"), [])
    assert not log.exists()


def test_without_a_log_dkms_own_words_count(tmp_path: Path, fake: FakeDkms) -> None:
    fake.build = Done((), 21, "", "Error! Your kernel headers for kernel 6 cannot be found\n")
    assert "Error! Your kernel headers for kernel 6 cannot be found" in refusal(works(tmp_path))


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "x.c:9:1: fatal error: error writing to /tmp/ccX.s: No space left on device\nmake: *** Error 1\n",
            "Error! Bad",
        ),
        ("x86_64-linux-gnu-gcc-14: fatal error: Killed signal terminated program cc1\n", "Error! Bad"),
        ("", "Failed to mount /proc: Operation not permitted"),
        ("", ""),
    ],
)
def test_what_is_the_machines_fault_is_no_verdict_on_the_module(
    tmp_path: Path, fake: FakeDkms, log: str, said: str
) -> None:
    fake.build, fake.log = Done((), 1, said, ""), log
    with pytest.raises(GoldsmithError, match="couldn't be built here") as caught:
        build_modules(works(tmp_path), [])
    assert caught.value.exit_code == 4


def test_a_module_that_says_it_isnt_for_this_kernel(tmp_path: Path, fake: FakeDkms) -> None:
    fake.build = Done((), 77, "", "The dkms.conf includes a BUILD_EXCLUSIVE directive")
    assert "BUILD_EXCLUSIVE" in refusal(works(tmp_path))


def test_a_build_that_succeeds_and_yields_nothing(tmp_path: Path, fake: FakeDkms) -> None:
    fake.built = {"x86_64/module/Module.symvers": "", "x86_64/log/make.log": ""}
    assert "there is no module" in refusal(works(tmp_path))


def test_a_module_that_modprobe_wouldnt_find(tmp_path: Path, fake: FakeDkms) -> None:
    fake.looked = "modprobe finds no file for hello, and not what was built\n"
    assert "modprobe finds no file for hello" in refusal(works(tmp_path))


def test_a_patch_that_dkms_didnt_apply(tmp_path: Path, fake: FakeDkms) -> None:
    assert "didn't apply patches/x.patch (image.yml:9)" in refusal(works(tmp_path), patch())
    fake.build = Done((), 0, "Applying patch x.patch... done.\nBuilding module(s)... done.", "")
    assert build_modules(works(tmp_path, "again"), [patch()]) == 1


def test_a_patch_for_a_module_that_isnt_there(tmp_path: Path, fake: FakeDkms) -> None:
    said = refusal(works(tmp_path), patch("helo"))
    assert said.startswith("image.yml:9: patches the module helo") and "are hello" in said


def test_what_a_build_left_is_a_plain_file(tmp_path: Path, fake: FakeDkms) -> None:
    one = works(tmp_path)
    module = one.tree / f"var/lib/dkms/hello/1.0/{KERNEL}/x86_64/module"
    module.mkdir(parents=True)
    os.symlink("/etc/shadow", module / "leak.ko.xz")
    with pytest.raises(GoldsmithError, match="can't be read"):
        build_modules(one, [])
