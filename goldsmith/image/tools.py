"""The tools tree: the programs that make squashfs and disk images, out of a locked root file system of their own.

An artifact's bytes then depend on the lock of images/tools, not on the builder's distribution, and a host whose
mksquashfs reads no tar, or whose mke2fs ignores SOURCE_DATE_EPOCH, builds all the same. They run by bubblewrap: no
root, no network, read-only but for the folders they are given, and dead when we are, even by SIGKILL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from goldsmith import host
from goldsmith.errors import GoldsmithError
from goldsmith.holding import holding
from goldsmith.image.base import base_path, make_base
from goldsmith.lock.locking import fill, lock_fits, lock_image
from goldsmith.model.image import read_image
from goldsmith.model.lock import Lock, read_lock

IMAGE = "tools"
BWRAP: Mapping[str, str] = {"bwrap": "bubblewrap"}
# What of the tree is seen: a merged /usr, as Debian has had it since 12.
_LINKS = ("bin", "sbin", "lib", "lib64")


@dataclass(frozen=True)
class Tools:
    """tree: the tools tree; None takes this machine's own programs, which only tests do. packages: name → version, of
    all that is in it. lock: the digest of its lock.
    """

    tree: Path | None
    packages: Mapping[str, str] = field(default_factory=dict)
    lock: str = ""

    def command(
        self, argv: Sequence[str | Path], newest: int, *, reads: Iterable[Path] = (), writes: Iterable[Path] = ()
    ) -> list[str]:
        """The command line that runs `argv` in the tools tree.

        newest: seconds since 1970, for SOURCE_DATE_EPOCH. reads, writes: what it sees of this machine, files or
        folders, at their own absolute paths.
        """
        words = [str(word) for word in argv]
        if self.tree is None:
            return ["env", *_settings(newest), *words]
        seen = ["--ro-bind", str(self.tree / "usr"), "/usr", "--ro-bind", str(self.tree / "etc"), "/etc"]
        for name in _LINKS:
            seen += ["--symlink", f"usr/{name}", f"/{name}"]
        # systemd-repart makes its file systems in /var/tmp
        for folder in ("/tmp", "/run", "/var/tmp"):
            seen += ["--tmpfs", folder]
        for option, paths in (("--ro-bind", reads), ("--bind", writes)):
            for path in paths:
                seen += [option, str(path.absolute()), str(path.absolute())]
        alone = ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
        for setting in (*_settings(newest), "PATH=/usr/sbin:/usr/bin"):
            alone += ["--setenv", *setting.split("=", 1)]
        return ["bwrap", "--dev", "/dev", "--proc", "/proc", *seen, *alone, "--", *words]

    def version(self, package: str) -> str:
        """A package's version, `host's own` without a tree."""
        return self.packages.get(package, "this machine's")


def _settings(newest: int) -> list[str]:
    return [f"SOURCE_DATE_EPOCH={newest}", "LC_ALL=C.UTF-8", "TZ=UTC", "SYSTEMD_LOG_LEVEL=warning"]


def tools_tree(project: Path, state: Path) -> Tools:
    """The project's tools tree; locked and made unless it is there.

    state: the project's state directory. Needs root to make it. Raises GoldsmithError.
    """
    folder = project / "images" / IMAGE
    if not (folder / "image.yml").is_file():
        raise GoldsmithError(
            "there is no such image, and this format is made by the programs in it",
            where=str(folder),
            hint="copy images/tools from goldsmith into your project",
        )
    image = read_image(folder)
    if (folder / "image.lock").is_file():
        lock = read_lock(folder)
        if not lock_fits(image, lock, []):
            raise GoldsmithError(
                "image.yml isn't what was locked", where=str(folder), hint=f"goldsmith lock images/{IMAGE}"
            )
        if (path := base_path(image, lock, state)).is_dir():
            return of(path, lock)
    host.require_root(f"making the root file system of images/{IMAGE}")
    with holding(state / "build" / f"{IMAGE}.lock", f"the build of images/{IMAGE}"):
        lock = read_lock(folder) if (folder / "image.lock").is_file() else lock_image(project, folder)[0]
        fill(project, lock)
        return of(make_base(image, lock, state), lock)


def of(tree: Path, lock: Lock) -> Tools:
    """A tools tree that is there."""
    return Tools(tree, {name: one.version for name, one in lock.packages.items()}, lock.digest)
