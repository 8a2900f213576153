"""Managed files: written whole, with their mode and owner, by renaming; what was there before is kept."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from io import BytesIO

from pyinfra.api import FileUploadCommand, StringCommand, operation
from pyinfra.api.command import PyinfraCommand, QuoteString

from goldsmith.converge.host import changed, differences
from goldsmith.model.node import Target
from goldsmith.model.resource import File
from goldsmith.plan import Plan

BACKUPS = "/var/backups/goldsmith"

# What has to hear of a changed file: (pattern, targets, command). A program that isn't there needs nothing.
_LIVE: tuple[Target, ...] = ("live",)
_BOTH: tuple[Target, ...] = ("live", "image")
RELOADS: tuple[tuple[str, tuple[Target, ...], str], ...] = (
    ("/etc/systemd/system/*", _LIVE, "systemctl daemon-reload"),
    # DefaultLimit…= are read by the manager itself, and given to services that start after that
    ("/etc/systemd/system.conf.d/*", _LIVE, "systemctl daemon-reexec"),
    ("/etc/udev/rules.d/*", _LIVE, "udevadm control --reload"),
    # a blacklist that isn't in the initramfs doesn't hold there: nouveau loads before the root is mounted
    ("/etc/modprobe.d/*", _BOTH, "if command -v update-initramfs >/dev/null && ls /boot/vmlinuz-* >/dev/null 2>&1;"
                                 " then update-initramfs -u -k all; fi"),
    ("/etc/default/grub.d/*", _BOTH, "if command -v update-grub >/dev/null; then update-grub; fi"),
)  # fmt: skip


def reloads(paths: list[str], target: Target) -> list[str]:
    """The commands that have to run after these files changed, each once, in order."""
    return [
        command
        for pattern, targets, command in RELOADS
        if target in targets and any(fnmatchcase(path, pattern) for path in paths)
    ]


def write(file: File, stamp: str, *, keep: bool) -> Iterator[PyinfraCommand]:
    """The commands that put one file there.

    The body goes by upload, never on a command line; the temporary file is private until it has its owner and
    mode. keep: what was there is copied to BACKUPS first (a hand edit was somebody's work).
    """
    path, temporary = QuoteString(file.path), QuoteString(f"{file.path}.goldsmith-new")
    if keep:
        backup = QuoteString(f"{BACKUPS}{file.path}.{stamp}")
        folder = QuoteString(f"{BACKUPS}{file.path}".rsplit("/", 1)[0])
        yield StringCommand(
            "if [ -e", path, "]; then mkdir -p -m 0700", QuoteString(BACKUPS), "&& mkdir -p", folder,
            "&& cp -a --", path, backup, "; fi",
        )  # fmt: skip
    yield StringCommand("install -D -m 0600 /dev/null", temporary)
    yield FileUploadCommand(BytesIO(file.content.encode()), f"{file.path}.goldsmith-new")
    owner = QuoteString(f"{file.owner}:{file.group}")
    yield StringCommand(
        "chown", owner, temporary, "&& chmod", f"{file.mode:04o}", temporary, "&& mv -fT", temporary, path
    )


@operation()
def managed(plan: Plan, role: str, before_packages: bool, stamp: str) -> Iterator[PyinfraCommand]:
    """Every file of a role that differs, and the reloads that follow.

    before_packages: only those that must be there before the package transaction, or only the others.
    """
    files = plan.desired.files
    found = yield from differences(plan, ["files"], role)
    paths = [one.key for one in found if one.key in files and files[one.key].before_packages == before_packages]
    live = plan.node.target == "live"
    for path in paths:
        changed()
        yield from write(files[path], stamp, keep=live)
    for command in reloads(paths, plan.node.target):
        yield StringCommand(command)
