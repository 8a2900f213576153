"""Kernel modules of an image, for real: NVIDIA's driver that builds, the one that doesn't, and a small module of the
tests' own, built by the real dkms and compiler in copies of the same tree.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import pytest

from goldsmith.errors import GoldsmithError, Refused
from goldsmith.fleet.rootfs import run_in_tree
from goldsmith.image.dkms import Works, build_modules
from goldsmith.image.dkms_cache import ModuleCache
from goldsmith.lock.patches import PatchText
from goldsmith.model.lock import Lock, LockedPatch, read_lock
from tests.docs import commands
from tests.unit.lock_debs import Repository, needs_apt

from .conftest import PROJECT
from .stubs import Workshop, deb

pytestmark = needs_apt
KERNEL = "6.12.117+deb13-cloud-amd64"
DRIVER, MODULE = "535.274.02", "nvidia-tesla-535"
CODE = """\
#include <linux/module.h>

static int __init hello_init(void)
{
\treturn 0;
}

static void __exit hello_exit(void)
{
}

module_init(hello_init);
module_exit(hello_exit);
MODULE_LICENSE("GPL");
MODULE_VERSION("1.0");
MODULE_DESCRIPTION("as packaged");
"""
CONF = """\
PACKAGE_NAME=hello
PACKAGE_VERSION=1.0
BUILT_MODULE_NAME[0]=hello
DEST_MODULE_LOCATION[0]=/updates/dkms
AUTOINSTALL=yes
"""
HELLO = {"hello.c": CODE, "Makefile": "obj-m += hello.o\n", "dkms.conf": CONF}
PATCH = """\
--- a/hello.c
+++ b/hello.c
@@ -15,3 +15,3 @@
 MODULE_LICENSE("GPL");
 MODULE_VERSION("1.0");
-MODULE_DESCRIPTION("as packaged");
+MODULE_DESCRIPTION("as patched");
"""
# images/lab-gpu, with the small module and a patch for it.
GPU = """\
schema: 1
extends: ../lab-gpu
name: gpu
repositories:
  stubs:
    uri: file:{repository.root}
    suites: [trixie]
    components: [main]
    key:
      fingerprint: {repository.key.fingerprint}
      url: file://{repository.keyring}
families:
  hello:
    version: "1.0"
    repository: stubs
    packages: [hello-dkms]
dkms:
  patches:
    - module: hello
      file: patches/hello.patch
"""
OPEN = f"""\
schema: 1
name: open
base:
  distribution: debian
  release: trixie
  suites: [trixie, trixie-updates, trixie-security]
  components: [main, contrib, non-free, non-free-firmware]
  packages: [python3, systemd-sysv, kmod, initramfs-tools]
kernel:
  release: {KERNEL}
  version: 6.12.117
  packages:
    - linux-image-{KERNEL}
    - linux-headers-{KERNEL}
stack:
  driver:
    version: 550.163.01
    flavor: open
    packages:
      - nvidia-open-kernel-dkms
roles: [base, kernel]
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    root = tmp_path_factory.mktemp("dkms")
    shop = Workshop(root, Repository(root))
    shop.setup()
    for name in ("lab", "lab-gpu"):
        (root / "images" / name).mkdir(parents=True)
        shutil.copy(PROJECT / "images" / name / "image.yml", root / "images" / name)
    files = {f"/usr/src/hello-1.0/{name}": text.encode() for name, text in HELLO.items()}
    shop.repository.publish([deb("hello-dkms", "1.0-1", "hello", "dkms", files)])
    (root / "images/gpu/patches").mkdir(parents=True)
    (root / "images/gpu/image.yml").write_text(GPU.format(repository=shop.repository))
    (root / "images/gpu/patches/hello.patch").write_text(PATCH)
    (root / "images/open").mkdir()
    (root / "images/open/image.yml").write_text(OPEN)
    yield shop
    shutil.rmtree(root)


def goldsmith(shop: Workshop, *words: str, expect: int = 0) -> str:
    done = shop.goldsmith(*words, timeout=1800)
    assert done.returncode == expect
    return done.stdout + done.stderr


def mounts(shop: Workshop) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(shop.root) in line]


# --- a driver that builds


@pytest.fixture(scope="module")
def built(shop: Workshop) -> str:
    """images/gpu, locked and built by the commands that the page about kernel modules shows. What they said."""
    said = ""
    for words in commands(PROJECT / "docs/kernel-modules.md"):
        said += goldsmith(shop, *[word.replace("images/lab-gpu", "images/gpu") for word in words[1:]])
    assert not mounts(shop)
    return said


@pytest.fixture(scope="module")
def layer(shop: Workshop, built: str) -> Path:
    """The tree with its packages and modules."""
    return next((shop.state / "build/gpu").glob("packages-*"))


def modinfo(tree: Path, name: str, field: str) -> str:
    argv = ["modinfo", "-k", KERNEL, "-F", field, name]
    return run_in_tree(tree, argv, timeout=60, what="modinfo").out.strip()


def test_modinfo_names_the_driver_and_the_images_kernel(shop: Workshop, layer: Path) -> None:
    modules = [path.name.split(".")[0] for path in (layer / f"usr/lib/modules/{KERNEL}/updates/dkms").iterdir()]
    nvidia = [MODULE, *(f"{MODULE}-{part}" for part in ("drm", "modeset", "peermem", "uvm"))]
    assert sorted(modules) == sorted(["hello", *nvidia])
    for name in nvidia:
        assert modinfo(layer, name, "version") == DRIVER
        assert modinfo(layer, name, "vermagic").split()[0] == KERNEL != os.uname().release
    manifest = json.loads((shop.state / "images/gpu/manifest.json").read_text())
    told = {one["module"]: one for one in manifest["roles"]["kernel"]["dkms"]}
    assert told[MODULE]["installed"] == [KERNEL] and not told[MODULE]["missing"]
    found = {one["name"]: (one["version"], one["kernel"]) for one in told[MODULE]["built"]}
    assert found == dict.fromkeys(nvidia, (DRIVER, KERNEL))
    assert manifest["roles"]["nvidia_driver"]["on_disk"][0]["version"] == DRIVER
    kept = [json.loads(path.read_text())["module"] for path in (shop.state / "dkms").glob("*/entry.json")]
    assert sorted(kept) == ["hello", MODULE]


def test_nothing_of_the_making_is_in_the_image(shop: Workshop, layer: Path) -> None:
    argv = ["zstd", "-d", "-q", "-c", str(shop.state / "images/gpu/rootfs.tar.zst")]
    with (
        subprocess.Popen(argv, stdout=subprocess.PIPE) as unpacking,
        tarfile.open(fileobj=cast(IO[bytes], unpacking.stdout), mode="r|") as tar,
    ):
        names = {one.name for one in tar}
    about = {name for name in names if name.startswith(("./var/lib/dkms/", "./etc/dkms/"))}
    assert f"./var/lib/dkms/hello/1.0/{KERNEL}/x86_64/module/hello.ko.xz" in about
    for name in about:
        assert "/build" not in name and "/log" not in name and "mok" not in name and ".tmp" not in name, name
    assert {name for name in about if name.startswith("./etc/dkms/framework.conf.d/")} == {
        "./etc/dkms/framework.conf.d/autoinstall_all_kernels.conf"
    }
    assert not [name for name in names if name.startswith("./var/lib/shim-signed/mok/")]


# --- a patch


def test_a_patch_is_in_the_lock_and_in_the_module(shop: Workshop, layer: Path) -> None:
    (locked,) = read_lock(shop.root / "images/gpu").patches
    assert (locked.module, locked.file) == ("hello", "patches/hello.patch")
    assert modinfo(layer, "hello", "description") == "as patched"
    # the source is the package's, and a build on a node, for a later kernel, has the patch too
    assert (layer / "usr/src/hello-1.0/hello.c").read_text() == CODE
    assert 'PATCH+=("hello.patch")' in (layer / "etc/dkms/hello-1.0.conf").read_text()


def test_an_edited_patch_is_refused(shop: Workshop, built: str) -> None:
    path = shop.root / "images/gpu/patches/hello.patch"
    try:
        path.write_text(PATCH.replace("as patched", "as edited"))
        said = goldsmith(shop, "build", "images/gpu", expect=4)
    finally:
        path.write_text(PATCH)
    assert "images/gpu/image.yml:20, dkms.patches.0.file" in said and "was changed since the image was locked" in said
    assert "is built already" in goldsmith(shop, "build", "images/gpu")


# --- the small module, in copies of that tree


@dataclass
class Bench:
    """Copies of the tree that cost nothing, each with sources of the test's own and no other module."""

    layer: Path
    root: Path
    lock: Lock
    mounted: list[Path]

    def tree(self, name: str, **files: str) -> Path:
        """files: those of HELLO, changed; `dkms_conf` for dkms.conf."""
        folder = self.root / name
        for part in ("upper", "work", "tree"):
            (folder / part).mkdir(parents=True)
        tree = folder / "tree"
        options = f"lowerdir={self.layer},upperdir={folder / 'upper'},workdir={folder / 'work'}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, tree], check=True, timeout=60)
        self.mounted.append(tree)
        for path in (f"usr/src/{MODULE}-{DRIVER}", "usr/src/hello-1.0", "var/lib/dkms",
                     f"usr/lib/modules/{KERNEL}/updates"):  # fmt: skip
            shutil.rmtree(tree / path)
        (tree / "etc/dkms/hello-1.0.conf").unlink()
        (tree / "var/lib/dkms").mkdir()
        (tree / f"boot/initrd.img-{KERNEL}").unlink()  # each would take seconds
        (tree / "usr/src/hello-1.0").mkdir()
        for file, text in {**HELLO, **{key.replace("_conf", ".conf"): text for key, text in files.items()}}.items():
            (tree / "usr/src/hello-1.0" / file).write_text(text)
        run_in_tree(tree, ["depmod", KERNEL], timeout=60, what="depmod")
        return tree

    def build(self, tree: Path, *patches: PatchText) -> int:
        state = self.root
        return build_modules(Works(tree, self.lock, ModuleCache(state / "dkms", state), state, 1764547200), patches)

    def refusal(self, tree: Path, *patches: PatchText) -> str:
        with pytest.raises(Refused) as caught:
            self.build(tree, *patches)
        assert caught.value.exit_code == 2 and not (self.root / "dkms").exists()
        assert not list((tree / "etc/dkms/framework.conf.d").glob("zz-*"))
        print(caught.value)
        return str(caught.value)


@pytest.fixture
def bench(shop: Workshop, layer: Path, tmp_path: Path) -> Iterator[Bench]:
    one = Bench(layer, tmp_path, read_lock(shop.root / "images/gpu"), [])
    yield one
    for tree in one.mounted:
        subprocess.run(["umount", tree], check=True, timeout=60)


def patch(text: str) -> PatchText:
    locked = LockedPatch(module="hello", file="patches/hello.patch", sha256="0" * 64)
    return PatchText(locked, text.encode(), "images/gpu/image.yml:18")


def files_of(tree: Path) -> dict[str, bytes]:
    """What a build of modules makes."""
    folders = [tree / "var/lib/dkms", tree / f"usr/lib/modules/{KERNEL}"]
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(tree)): path.read_bytes() for path in found if "/kernel/" not in str(path)}


def test_the_second_build_is_from_the_cache_and_the_same(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = bench.tree("first"), bench.tree("second"), bench.tree("third")
    assert bench.build(first) == 1 and modinfo(first, "hello", "description") == "as packaged"
    capsys.readouterr()
    assert bench.build(second) == 1
    assert "built before" in " ".join(capsys.readouterr().err.split())
    assert f"var/lib/dkms/hello/1.0/{KERNEL}/x86_64/module/hello.ko.xz" in files_of(first)
    assert files_of(first) == files_of(second)
    # and by one core, in another place, with nothing kept
    shutil.rmtree(bench.root / "dkms")
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert bench.build(third) == 1
    finally:
        os.sched_setaffinity(0, cores)
    assert files_of(first) == files_of(third)


def test_an_entry_that_was_changed_isnt_taken(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.build(bench.tree("first"))
    kept = next((bench.root / "dkms").rglob("hello.ko.xz"))
    good = kept.read_bytes()
    kept.write_bytes(good[:99] + bytes([good[99] ^ 1]) + good[100:])
    capsys.readouterr()
    second = bench.tree("second")
    bench.build(second)
    assert "damaged in the cache" in " ".join(capsys.readouterr().err.split())
    assert modinfo(second, "hello", "version") == "1.0" and kept.read_bytes() == good


def test_a_patch_that_doesnt_fit(bench: Bench) -> None:
    said = bench.refusal(bench.tree("one"), patch(PATCH.replace("as packaged", "as somebody else packaged")))
    assert "module hello 1.0 doesn't build" in said and "\n  hello.patch: hello.c: Hunk #1 FAILED at 15." in said
    assert "known to build for" in said and (bench.root / "gpu.hello-1.0.make.log").is_file()


def test_a_patch_that_dkms_passes_over(bench: Bench) -> None:
    """It counts a list with a gap in it by its length."""
    conf = CONF + 'PATCH[3]="own.patch"\n'
    assert "didn't apply patches/hello.patch" in bench.refusal(bench.tree("one", dkms_conf=conf), patch(PATCH))


COMPLAINTS: dict[str, tuple[dict[str, str], str]] = {
    "the compiler": ({"hello.c": CODE.replace("return 0;", "return not_there;")}, "hello.c:5:16: error: "),
    "the linker": (
        {"hello.c": "int not_there(void);\n" + CODE.replace("return 0;", "return not_there();")},
        'ERROR: modpost: "not_there" ',
    ),
    "success, and no file": ({"dkms_conf": CONF + 'MAKE[0]="true"\n'}, "Error! Build of hello.ko failed for"),
    "success, and no module named": (
        {"dkms_conf": "PACKAGE_NAME=hello\nPACKAGE_VERSION=1.0\nAUTOINSTALL=yes\nMAKE[0]=true\n"}, "there is no module",
    ),
    "not for this kernel": ({"dkms_conf": CONF + "BUILD_EXCLUSIVE_KERNEL=^5\n"}, "BUILD_EXCLUSIVE"),
    "needs another module": ({"dkms_conf": CONF + "BUILD_DEPENDS[0]=other\n"}, "BUILD_DEPENDS: other"),
    "gone after the build": (
        {"dkms_conf": CONF + "POST_BUILD=post\n", "post": "#!/bin/sh\nrm /var/lib/dkms/hello/1.0/*/*/module/*.ko*\n"},
        "there is no module",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COMPLAINTS)
def test_a_module_that_isnt_there_in_the_end(bench: Bench, case: str) -> None:
    files, said = COMPLAINTS[case]
    tree = bench.tree("one", **files)
    if (tree / "usr/src/hello-1.0/post").exists():
        (tree / "usr/src/hello-1.0/post").chmod(0o755)
    assert said in bench.refusal(tree)


def test_a_module_that_depmod_doesnt_know(shop: Workshop, bench: Bench) -> None:
    """dkms says that it is installed, and so does dpkg of its package."""
    tree = bench.tree("one")
    depmod = tree / "usr/sbin/depmod"
    depmod.unlink()
    depmod.write_text("#!/bin/sh\n# a fake\n")
    depmod.chmod(0o755)
    assert "modprobe finds no file for hello, and not what was built" in bench.refusal(tree)
    # and whatever the build thinks: the tree's own word for it
    severity, actual = shop.audit("gpu", tree)["kernel.dkms-built", f"hello/1.0 for {KERNEL}"]
    assert (severity, actual) == ("FAIL", "installed, and modprobe doesn't find hello")


def test_a_module_that_dkms_skips_since_the_kernel_has_a_newer_one(bench: Bench) -> None:
    """It warns, installs the others, and succeeds."""
    two = CONF + "BUILT_MODULE_NAME[1]=other\nDEST_MODULE_LOCATION[1]=/updates/dkms\n"
    make = {"Makefile": "obj-m += hello.o other.o\n", "other.c": CODE, "dkms_conf": two}
    newer = bench.tree("newer", **{**make, "other.c": CODE.replace('"1.0"', '"9.0"')})
    bench.build(newer)
    tree = bench.tree("one", **make)
    own = tree / f"usr/lib/modules/{KERNEL}/kernel/other.ko.xz"
    own.write_bytes((newer / f"usr/lib/modules/{KERNEL}/updates/dkms/other.ko.xz").read_bytes())
    shutil.rmtree(bench.root / "dkms")
    assert "/kernel/other.ko.xz for other, and not what was built" in bench.refusal(tree)


def test_a_source_whose_script_ends_the_shell(bench: Bench) -> None:
    with pytest.raises(GoldsmithError, match=r"/usr/src/hello-1\.0/dkms\.conf: the shell ends in it"):
        bench.build(bench.tree("one", dkms_conf="exit 0\n" + CONF))


@pytest.mark.parametrize("line", ["AUTOINSTALL=no", "AUTOINSTALL="])
def test_a_source_that_nobody_wants_built(bench: Bench, line: str) -> None:
    tree = bench.tree("one", dkms_conf=CONF.replace("AUTOINSTALL=yes", line))
    assert bench.build(tree) == 0 and not list((tree / "var/lib/dkms").iterdir())


def test_a_killed_build_takes_its_compiler_with_it(bench: Bench) -> None:
    """A power cut, as far as a process can feel one."""
    tree = bench.tree("one", dkms_conf=CONF + 'MAKE[0]="sleep 77"\n')
    pid = os.fork()
    if pid == 0:
        try:
            bench.build(tree)
        finally:
            os._exit(1)
    try:
        wait_for(lambda: running("sleep\0" + "77"), "a build that sleeps")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    wait_for(lambda: not running("sleep\0" + "77") and not running(f"--directory={tree}"), "its end")
    # the next one, in another tree, as a build has it
    assert bench.build(bench.tree("two")) == 1


def running(words: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if words.encode() in path.read_bytes():
                return True
    return False


def wait_for(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


# --- a driver that doesn't


def test_a_driver_that_doesnt_build(shop: Workshop) -> None:
    locked = goldsmith(shop, "lock", "images/open", expect=2)
    assert not (shop.root / "images/open/image.lock").exists()
    goldsmith(shop, "lock", "images/open", "--allow-known-bad")
    built = goldsmith(shop, "build", "images/open", "--format", "rootfs", expect=2)
    assert "images/open/image.yml:17, stack.driver.version" in locked and "nv-pci.c:237" in locked
    assert "(K1, by " in locked and "--allow-known-bad" in locked
    assert f"module nvidia-current-open 550.163.01 doesn't build for kernel {KERNEL}" in built
    assert "nv-pci.c:237:9: error: too few arguments to function" in built
    assert f"known to build for {KERNEL}: nvidia-tesla-535-kernel-dkms {DRIVER}" in built
    log = shop.state / "build/open.nvidia-current-open-550.163.01.make.log"
    assert str(log) in built and "pci_resize_resource" in log.read_text()
    assert not (shop.state / "images/open").exists()
    assert not mounts(shop)
    assert [path.name for path in (shop.state / "build/open").iterdir() if not path.name.startswith("base-")] == []
