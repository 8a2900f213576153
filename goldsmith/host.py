"""The machine goldsmith runs on: what a build or a lab needs of it, asked before anything is made.

Every check is one question; its answer is one clear sentence, a GoldsmithError (exit 4) that says what to do.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

from goldsmith import process
from goldsmith.errors import GoldsmithError
from goldsmith.progress import console, step

GIB = 1024**3

# tool → the Debian (and Ubuntu) package that has it
IMAGE_TOOLS: Mapping[str, str] = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "zstd": "zstd",
    "tar": "tar",
    "unshare": "util-linux",
    "ssh-keygen": "openssh-client",
}
LAB_TOOLS: Mapping[str, str] = {
    **IMAGE_TOOLS,
    "ip": "iproute2",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
}

# File systems that can't hold the writable layer of an overlay, whatever the kernel says at mount time.
_NO_UPPER = ("overlay", "nfs", "nfs4", "cifs", "smb3", "9p", "vfat", "exfat", "ntfs3", "virtiofs", "ceph")
# A file of the lower layer is removed: the kernel then needs whiteouts, which a poor upper can't hold.
_TRY_OVERLAY = "mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged && rm merged/file"


def tidy_on_signals() -> None:
    """SIGTERM and SIGHUP (a closed terminal) end a command as Ctrl-C does: with everything cleaned up."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal.strsignal(number))


def require_root(what: str) -> None:
    """what: what needs root, in words. Raises GoldsmithError for any other user."""
    if os.geteuid() != 0:
        raise GoldsmithError(
            f"{what} needs root (mounts, a bridge, other users' files)",
            hint="run it again as root, or with sudo",
        )


def find_tool(tool: str) -> str | None:
    """The path of a program, or of a file that is named by its path.

    /usr/sbin is looked in too, which su and cron leave out of PATH.
    """
    if tool.startswith("/"):
        return tool if os.path.isfile(tool) else None
    return shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin")


def missing_packages(tools: Mapping[str, str]) -> dict[str, str]:
    """Those of `tools` (tool → Debian package) that aren't on this machine."""
    return {tool: package for tool, package in tools.items() if find_tool(tool) is None}


def require_tools(tools: Mapping[str, str], *, install: bool = True) -> list[str]:
    """See that the tools are there; install the Debian packages of those that aren't, after naming them.

    tools: tool → Debian package. install: False only checks.
    Returns the packages that were installed. Raises GoldsmithError with the line to run where this machine
    isn't a Debian, we aren't root, or apt-get fails (no network says so here).
    """
    missing = missing_packages(tools)
    if not missing:
        return []
    packages = sorted(set(missing.values()))
    named = ", ".join(sorted(missing))
    line = f"apt-get install {' '.join(packages)}"
    if not install or os.geteuid() != 0 or find_tool("apt-get") is None:
        raise GoldsmithError(f"this machine lacks {named}", hint=f"install them: {line} (or your system's packages)")
    console.print(f"This machine lacks {named}: installing {', '.join(packages)} with apt-get")
    _install(packages, line)
    if still := missing_packages(tools):
        raise GoldsmithError(f"{', '.join(sorted(still))} still isn't here", where=line)
    return packages


def _install(packages: list[str], line: str) -> None:
    """apt-get install, after an apt-get update where it fails: a fresh machine's lists are empty or stale."""
    wait = ["-o", "DPkg::Lock::Timeout=300"]  # unattended-upgrades may be at work
    words = ["apt-get", "-q", "-y", "--no-install-recommends", *wait, "install", *packages]
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    hint = f"is the network there, and are this machine's apt sources right? Then: {line}"
    with step(f"install {', '.join(packages)}") as current:
        first = process.run(words, timeout=900, what="install host tools", check=False, env=env, on_line=current.say)
        if first.code == 0:
            return
        update = ["apt-get", "-q", *wait, "update"]
        process.run(update, timeout=300, what="refresh the package lists", env=env, hint=hint, on_line=current.say)
        process.run(words, timeout=900, what="install host tools", env=env, hint=hint, on_line=current.say)


def nearest(path: Path) -> Path:
    """The path itself or the nearest folder above it that exists."""
    here = path.absolute()
    while not here.exists():
        here = here.parent
    return here


def require_disk(path: Path, gib: float, what: str) -> None:
    """At least `gib` GiB free where `path` is or will be, for `what`."""
    free = shutil.disk_usage(nearest(path)).free / GIB
    if free < gib:
        raise GoldsmithError(
            f"{what} needs {gib:g} GiB, there are {free:.1f} GiB free",
            where=str(path),
            hint="free some space, or put goldsmith's state elsewhere: GOLDSMITH_STATE=/a/larger/disk",
        )


def file_system(path: Path, mountinfo: str) -> str:
    """The type of the file system that holds `path` (absolute, real), from /proc/self/mountinfo's text."""
    best, kind = -1, "unknown"
    for line in mountinfo.splitlines():
        fields = line.split()
        point = fields[4].encode().decode("unicode_escape")  # blanks stand as \040
        # the later of two mounts on one point hides the earlier
        if (path == Path(point) or Path(point) in path.parents) and len(point) >= best:
            best, kind = len(point), fields[fields.index("-") + 1]
    return kind


def require_overlay(path: Path) -> None:
    """The writable layer of an overlay can lie where `path` is or will be. Tried, in a mount namespace."""
    folder = nearest(path).resolve()
    kind = file_system(folder, Path("/proc/self/mountinfo").read_text())
    hint = "put goldsmith's state on a local disk (ext4, xfs, btrfs): GOLDSMITH_STATE=/a/local/folder"
    if kind in _NO_UPPER or kind.startswith("fuse"):
        raise GoldsmithError(f"a node's writable layer can't lie on {kind}", where=str(path), hint=hint)
    try:
        trial = Path(tempfile.mkdtemp(prefix=".goldsmith-trial-", dir=folder))
    except OSError as error:
        raise GoldsmithError(f"can't be written: {error.strerror}", where=str(folder), hint=hint) from None
    try:
        for name in ("lower", "upper", "work", "merged"):
            (trial / name).mkdir()
        (trial / "lower/file").touch()
        argv = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", _TRY_OVERLAY]
        done = process.run(argv, timeout=20, what="try an overlay", check=False, cwd=trial)
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    if done.code != 0:
        raise GoldsmithError(f"an overlay can't be mounted on {kind}: {done.tail}", where=str(path), hint=hint)


def require_namespaces() -> None:
    """Mounts and namespaces are ours to make; an unprivileged container often lacks the right to."""
    kinds = ["--mount", "--pid", "--net", "--uts", "--ipc"]
    argv = ["unshare", *kinds, "--fork", "--propagation", "private", "--"]
    done = process.run(
        [*argv, "mount", "-t", "tmpfs", "goldsmith", "/tmp"], timeout=20, what="try namespaces", check=False
    )
    if done.code != 0:
        raise GoldsmithError(
            f"systemd-nspawn can't work here, no namespace or mount may be made: {done.tail}",
            hint="run on a machine or a virtual machine, or in a container started with --privileged",
        )
