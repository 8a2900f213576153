"""rootfs.squashfs: the tree for a netboot, for enroot, or to be mounted as it is; made of the packed tar by
mksquashfs.

Of the tar and not of the tree: a file keeps its own time, which Python compares its compiled files with
(mksquashfs' -all-time would make every import on a node compile again), and what the tar sorted stays sorted.
squashfs holds no POSIX ACLs; those that Debian's packages have, on /var/log/journal, systemd-tmpfiles sets at boot.
"""

from __future__ import annotations

from pathlib import Path

from goldsmith.image.pipe import pipe
from goldsmith.image.tools import Tools

SECONDS = 1800.0


def command(target: Path, newest: int) -> list[str]:
    """mksquashfs' arguments. newest: the root's time; its entry in a tar has no name, and mksquashfs skips it."""
    root = ["-root-mode", "0755", "-root-uid", "0", "-root-gid", "0", "-root-time", str(newest)]
    # -reproducible is the default since 4.4, and says so here; level 3 as in the tar
    settings = ["-comp", "zstd", "-Xcompression-level", "3", "-reproducible", "-noappend", "-no-progress", "-quiet"]
    return ["mksquashfs", "-", str(target), "-tar", *settings, *root]


def write(packed: Path, target: Path, newest: int, tools: Tools) -> None:
    """Make `target` of a tar.zst. newest: seconds since 1970, the lock's date. Raises GoldsmithError."""
    # mksquashfs goes on when a target is there, if only to append to it
    target.unlink(missing_ok=True)
    unpack = tools.command(["zstd", "-d", "-q", "-c", packed], newest, reads=[packed])
    make = tools.command(command(target, newest), newest, writes=[target.parent])
    pipe(unpack, make, timeout=SECONDS, what=f"make {target.name}", hint="is the disk full?")
