"""Kernel modules of an image: DKMS builds them in the tree for the lock's kernel, never for the builder's own.

Packages' scripts don't build (goldsmith.converge.transaction.Commands.no_start): they would for the kernel that runs,
and a failure would be dpkg's exit code. Here every module of the tree is built for the image's kernel, or taken from
the cache, and what can't be built ends the image's build with the compiler's line.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from goldsmith import atomic
from goldsmith.errors import GoldsmithError, Refused
from goldsmith.fleet.rootfs import run_in_tree
from goldsmith.image.dkms_cache import BuiltFile, Damaged, ModuleCache
from goldsmith.image.dkms_log import reason
from goldsmith.image.tree import Tree
from goldsmith.lint.facts import packaged_facts
from goldsmith.lint.rules.kernel import good_pairs
from goldsmith.lock.patches import PatchText
from goldsmith.model.lock import Lock
from goldsmith.process import Done
from goldsmith.progress import console, step

# Counted up when the same sources are built otherwise.
RULES = 1
BUILD_SECONDS = 3600.0
# Of one module, far above any; a file that is larger isn't a module.
LARGEST = 1 << 30
DKMS = "/var/lib/dkms"
SETTINGS = "/etc/dkms"
# Ours while modules are built, and gone afterwards.
FRAMEWORK = f"{SETTINGS}/framework.conf.d/zz-image-build.conf"
# No signing: DKMS would make a key for it in the tree, another one in each build, and the private half would be in the
# image. One thread for xz: with more it cuts its blocks otherwise. Files and no links; and nothing is loaded, where the
# builder itself runs a kernel of this release.
FRAMEWORK_TEXT = """sign_file=/nonexistent
compress_xz_opts="--check=crc32 --lzma2=dict=1MiB -T1"
symlink_modules=""
modprobe_on_install=""
"""
# What modules are told of time and place, whoever builds them and when.
ENVIRONMENT = {
    "SOURCE_DATE_EPOCH": "946684800", "KBUILD_BUILD_TIMESTAMP": "2000-01-01", "KBUILD_BUILD_USER": "image",
    "KBUILD_BUILD_HOST": "image",
}  # fmt: skip
# Sources of the packages that a module's bytes depend on, beside its own.
_TOOLCHAIN = re.compile(
    r"linux(-.*)?|gcc-.*|binutils|dkms|glibc|make-dfsg|kmod|xz-utils|libzstd|gzip|patch|perl|bash|coreutils|dash|sed|"
    r"gawk|mawk|grep|findutils|elfutils|dwarves.*|llvm-.*|clang-.*|rustc.*"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]*")
# dkms.conf is a shell script, and only bash can read it; like dkms we read it with what /etc/dkms lays over it.
# `source` is said outside: a script that exits ends its subshell, and must not be taken for one that isn't there.
# tar: names, modes, links and content in one digest.
_LIST = r"""
digest() { tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$1" -cf - . | sha256sum | cut -d' ' -f1; }
echo "settings|$(digest /etc/dkms)"
for conf in /usr/src/*/dkms.conf; do
    [ -f "$conf" ] && ! [ -L "${conf%/dkms.conf}" ] || continue
    set -- "$1" "${conf%/dkms.conf}" "$(digest "${conf%/dkms.conf}")"
    echo "source|$2"
    (
        kernelver=$1 arch=$(uname -m) PACKAGE_NAME= PACKAGE_VERSION= AUTOINSTALL= BUILD_DEPENDS=()
        . "$2/dkms.conf" > /dev/null 2>&1
        named=$PACKAGE_NAME; named_version=$named-$PACKAGE_VERSION
        for more in "$named" "$named_version" "$named_version-$1" "$named_version-$1-$arch" "$named--$1" \
            "$named--$1-$arch"; do
            [ -e "/etc/dkms/$more.conf" ] && . "/etc/dkms/$more.conf" > /dev/null 2>&1
        done
        echo "module|$2|$PACKAGE_NAME|$PACKAGE_VERSION|$AUTOINSTALL|${BUILD_DEPENDS[*]}|$3"
    )
done
"""
# `dkms add` fails for what a package's script has registered already.
_ADD = r"""[ -L "/var/lib/dkms/$1/$2/source" ] || dkms add -m "$1" -v "$2" """
_BUILD = r"""dkms build -m "$1" -v "$2" -k "$3" """
# What `dkms add` makes and `dkms build` takes away: gone, whichever was the last.
_INSTALL = r"""dkms install -m "$1" -v "$2" -k "$3" && rm -rf "/var/lib/dkms/$1/$2/build" """
# dkms skips a module that the kernel has in a newer version, warns and succeeds; and a Makefile may ask uname -r.
_LOOK = r"""for built in /var/lib/dkms/"$1/$2/$3"/*/module/*.ko*; do
    name=${built##*/}; name=${name%%.ko*}
    loaded=$(modinfo -k "$3" -n "$name" 2> /dev/null)
    cmp -s "$built" "$loaded" || echo "modprobe finds ${loaded:-no file} for $name, and not what was built"
    magic=$(modinfo -F vermagic "$built")
    [ "${magic%% *}" = "$3" ] || echo "$name is for ${magic:-no kernel that modinfo can name}"
done"""
_INITRD = r"""if [ -e "/boot/initrd.img-$1" ] && command -v update-initramfs > /dev/null; then
    update-initramfs -u -k "$1"
fi"""
# What is this machine's fault, and no module's.
_MACHINE = re.compile(r"No space left on device|Killed signal|annot allocate memory|out of memory|Disk quota exceeded")
# dkms's exit code for a module that says itself that it isn't for a kernel.
_EXCLUDED = 77


@dataclass(frozen=True)
class Source:
    """A module's source in the tree. digest: of all that is in its folder. wanted: packages' scripts would build it."""

    module: str
    version: str
    folder: str
    digest: str
    wanted: bool
    needs: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.module} {self.version}"


@dataclass(frozen=True)
class Works:
    """Where modules are built. logs: the folder for the log of a build that failed. epoch: the image's date."""

    tree: Path
    lock: Lock
    cache: ModuleCache
    logs: Path
    epoch: int

    @property
    def where(self) -> str:
        return f"images/{self.lock.image}"

    def run(self, script: str, *words: str, env: Mapping[str, str] = ENVIRONMENT, check: bool = True) -> Done:
        command, what = ["/bin/bash", "-c", script, "dkms", *words], f"build kernel modules of {self.where}"
        return run_in_tree(self.tree, command, timeout=BUILD_SECONDS, what=what, check=check, env=env)


def build_modules(works: Works, patches: Sequence[PatchText]) -> int:
    """Build and install every DKMS module of the tree for the lock's kernel; how many there are.

    patches: put into the modules' sources first. Nothing may run in the tree but this. Raises Refused for a module that
    can't be built, with the compiler's line and what is known to work, and GoldsmithError where we can't work.
    """
    kernel = works.lock.kernel
    if not _has_sources(works.tree):
        if patches:
            raise _no_such_module(patches[0], [])
        return 0
    if kernel is None:
        raise Refused(
            "it has DKMS modules, and no kernel to build them for", where=f"{works.where}/image.yml, kernel",
            hint="name the kernel that the image boots: kernel.release and its packages, with linux-headers-RELEASE",
        )  # fmt: skip
    _, sources = listed(works, kernel)
    for patch in patches:
        if not any(one.module == patch.locked.module for one in sources):
            raise _no_such_module(patch, sources)
    with Tree(works.tree) as tree:
        put_patches(tree, sources, patches)
    settings, sources = listed(works, kernel)  # as they are with the patches
    wanted = in_order([one for one in sources if one.wanted])
    if not wanted:
        return 0
    with Tree(works.tree) as tree:
        tree.write(FRAMEWORK, FRAMEWORK_TEXT)
    try:
        for one in wanted:
            mine = [patch for patch in patches if patch.locked.module == one.module]
            _provide(works, kernel, one, key(works.lock, kernel, one, sources, settings), mine)
    finally:
        with Tree(works.tree) as tree:
            tree.remove(FRAMEWORK)
    with step(f"initrd of {kernel}, with what was built"):
        # a module of the network or of disks may have to be in it
        works.run(_INITRD, kernel, env={"SOURCE_DATE_EPOCH": str(works.epoch)})
    return len(wanted)


def _has_sources(tree: Path) -> bool:
    with Tree(tree) as opened:
        folders = [f"/usr/src/{name}" for name in opened.names("/usr/src")]
        # Debian has a link there, to the kernel's own programs; dkms takes none for a source either
        plain = [path for path in folders if (status := opened.stat(path)) and stat.S_ISDIR(status.st_mode)]
        return any(opened.stat(f"{path}/dkms.conf") for path in plain)


def listed(works: Works, kernel: str) -> tuple[str, list[Source]]:
    """The digest of DKMS's settings in the tree, and the sources there."""
    return parse_list(works.run(_LIST, kernel).out, works.where)


def parse_list(text: str, where: str) -> tuple[str, list[Source]]:
    """What _LIST prints. Raises GoldsmithError for names that can't be a module's: they become paths."""
    settings, found, told = "", [], []
    for line in text.splitlines():
        kind, *fields = line.split("|")
        if kind == "settings" and len(fields) == 1:
            settings = fields[0]
        elif kind == "source" and len(fields) == 1:
            told.append(fields[0])
        elif kind == "module" and len(fields) == 6:
            folder, module, version, wanted, needs, digest = fields
            if not all(_NAME.fullmatch(word) for word in (module, version, *needs.split())):
                raise GoldsmithError(
                    f"PACKAGE_NAME {module!r}, PACKAGE_VERSION {version!r}: not a module's", where=f"{where}, {folder}"
                )
            asked = wanted.lower() not in ("", "no")
            found.append(Source(module, version, folder, digest, asked, tuple(needs.split())))
        else:
            raise GoldsmithError(f"the sources of DKMS modules can't be read: {line[:200]!r}", where=where)
    for folder in told:
        if folder not in [one.folder for one in found]:
            raise GoldsmithError(
                "the shell ends in it, before it says what it builds", where=f"{where}, {folder}/dkms.conf"
            )
    return settings, found


def in_order(sources: Sequence[Source]) -> list[Source]:
    """The sources, each behind those that it needs (BUILD_DEPENDS); by name otherwise."""
    left = sorted(sources, key=lambda one: (one.module, one.version))
    placed: list[Source] = []
    while left:
        names = {one.module for one in left}
        # in a circle somebody has to be first; dkms says what is wrong then
        following = next((one for one in left if not (set(one.needs) - {one.module}) & names), left[0])
        placed.append(following)
        left.remove(following)
    return placed


def key(lock: Lock, kernel: str, source: Source, all_sources: Sequence[Source], settings: str) -> str:
    """Changes when the module's bytes could. all_sources: of the tree, since one module's source may look into
    another's (NVIDIA's peer memory into OFED's)."""
    tools = {
        name: [one.version, one.sha256]
        for name, one in lock.packages.items()
        if _TOOLCHAIN.fullmatch(one.source) or name.startswith(("linux-headers-", "linux-image-"))
    }
    data = {
        "rules": RULES, "module": source.module, "version": source.version, "kernel": kernel,
        "architecture": lock.architecture, "settings": settings, "framework": FRAMEWORK_TEXT, "told": ENVIRONMENT,
        "sources": {f"{one.folder}": one.digest for one in all_sources}, "tools": tools,
    }  # fmt: skip
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def put_patches(tree: Tree, sources: Sequence[Source], patches: Sequence[PatchText]) -> None:
    """Put patches where dkms looks for them, and name them to it: the source itself stays as it was packaged, and a
    build on a node, for a later kernel, has them too."""
    for one in sources:
        mine = [patch for patch in patches if patch.locked.module == one.module]
        for patch in mine:
            path = f"{one.folder}/patches/{patch.name}"
            if tree.stat(path):
                raise GoldsmithError(
                    f"{one} comes with a patch named {patch.name} itself", where=patch.field, hint="rename yours"
                )
            tree.write(path, patch.text)
        if mine:
            path = f"{SETTINGS}/{one.module}-{one.version}.conf"
            had = (tree.read(path) or b"").decode(errors="replace")
            had += "\n" if had and not had.endswith("\n") else ""
            lines = [f'PATCH+=("{patch.name}")\n' for patch in mine]
            tree.write(path, had + "# Patches that the image adds.\n" + "".join(lines))


def _no_such_module(patch: PatchText, sources: Sequence[Source]) -> Refused:
    has = ", ".join(dict.fromkeys(one.module for one in sources)) or "none"
    return Refused(
        f"patches the module {patch.locked.module}, which the image hasn't got: its DKMS modules are {has}",
        where=patch.field, hint="the name is PACKAGE_NAME of its dkms.conf",
    )  # fmt: skip


def _provide(works: Works, kernel: str, one: Source, name: str, patches: Sequence[PatchText]) -> None:
    """Bring one module into the tree: from the cache by its key `name`, or built with these patches."""
    works.run(_ADD, one.module, one.version)
    kept = works.cache.load(name)
    if isinstance(kept, Damaged):
        console.print(f"  [yellow]![/] {one} for {kernel} is damaged in the cache ({kept.why}): it is built anew")
        works.cache.drop(name)
        kept = None
    base = f"{DKMS}/{one.module}/{one.version}/{kernel}"
    if kept:
        with step(f"module {one} for {kernel}, built before"), Tree(works.tree) as tree:
            for path, file in kept.items():
                tree.write(f"{base}/{path}", file.content, file.mode)
            _install(works, kernel, one)
        return
    with step(f"build module {one} for {kernel}"):
        done = works.run(_BUILD, one.module, one.version, kernel, check=False)
        if done.code != 0:
            raise _failed(works, kernel, one, done)
        for patch in patches:
            # dkms counts its list of patches by its length: with a gap in a packaged one it never comes to the last
            if f"applying patch {patch.name.lower()}..." not in done.out.lower():
                raise _not_built(works, kernel, one, f"dkms didn't apply {patch.locked.file} ({patch.field})", done.out)
        with Tree(works.tree) as tree:
            files = _collect(tree, base)
        if not any(".ko" in path for path in files):
            raise _not_built(works, kernel, one, "dkms said that it built it, and there is no module", done.out)
        _install(works, kernel, one)
        works.cache.store(name, {"module": one.module, "version": one.version, "kernel": kernel}, files)


def _install(works: Works, kernel: str, one: Source) -> None:
    done = works.run(_INSTALL, one.module, one.version, kernel, check=False)
    if done.code != 0:
        said = done.out + done.err
        raise _not_built(works, kernel, one, reason(said), said, "was built, and can't be installed for")
    if lost := works.run(_LOOK, one.module, one.version, kernel).out.strip():
        why = lost.replace("\n", "\n  ")
        raise _not_built(works, kernel, one, why, done.out + done.err, "was built, and isn't there for")
    _log(works, one).unlink(missing_ok=True)  # of an earlier build, that failed


def _log(works: Works, one: Source) -> Path:
    return works.logs / f"{works.lock.image}.{one.module}-{one.version}.make.log"


def _collect(tree: Tree, base: str) -> dict[str, BuiltFile]:
    """What dkms keeps of a build, without its log, which has times in it and goes."""
    found: dict[str, BuiltFile] = {}
    for path in list(_files(tree, base)):
        relative = path.removeprefix(f"{base}/")
        if "/log/" in path:
            tree.remove(path)
            continue
        status, content = tree.stat(path), tree.read(path, LARGEST)
        if status is None or content is None or len(content) >= LARGEST:
            raise GoldsmithError("what DKMS built can't be read", where=f"{tree.root}, {path}")
        found[relative] = BuiltFile(content, stat.S_IMODE(status.st_mode))
    for arch in tree.names(base):
        tree.remove_folder(f"{base}/{arch}/log")
    return found


def _files(tree: Tree, folder: str) -> Iterator[str]:
    for name in tree.names(folder):
        path = f"{folder}/{name}"
        status = tree.stat(path)
        if status and stat.S_ISDIR(status.st_mode):
            yield from _files(tree, path)
        else:
            yield path


def _failed(works: Works, kernel: str, one: Source, done: Done) -> GoldsmithError:
    """Refused, if the module is to blame; this machine may be."""
    said = done.out + done.err
    if done.code == _EXCLUDED:
        why = "it says itself that it isn't for this kernel (BUILD_EXCLUSIVE in its dkms.conf)"
        return _not_built(works, kernel, one, why, "")
    with Tree(works.tree) as tree:
        log = (tree.read(f"{DKMS}/{one.module}/{one.version}/build/make.log") or b"").decode(errors="replace")
    why = reason(log, said)
    if _MACHINE.search(why) or not (log or "Error!" in said):
        return GoldsmithError(
            f"module {one} couldn't be built here:\n  {why or f'dkms ended with {done.code}'}", where=works.where,
            hint="that says nothing about the module: make room, and build again",
        )  # fmt: skip
    return _not_built(works, kernel, one, why, log or said)


def _not_built(works: Works, kernel: str, one: Source, why: str, log: str, verb: str = "doesn't build for") -> Refused:
    """The verdict. log: kept for people, since the tree is removed."""
    hints = good_pairs(packaged_facts(), kernel) or ["no driver is known to build for it (kernel_builds in facts.yaml)"]
    if log:
        atomic.write(_log(works, one), log)
        hints.append(f"all that was said: {_log(works, one)}")
    return Refused(f"module {one} {verb} kernel {kernel}:\n  {why}", where=works.where, hint="\n  ".join(hints))
