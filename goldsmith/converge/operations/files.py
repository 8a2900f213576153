"""Managed files: written whole, with their mode and owner, by renaming; what was there before is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import BytesIO
from shlex import quote

from pyinfra.api import FileUploadCommand, StringCommand, operation
from pyinfra.api.command import PyinfraCommand, QuoteString

from goldsmith.converge.host import changed, differences
from goldsmith.model.finding import Severity
from goldsmith.model.node import Target
from goldsmith.model.resource import File
from goldsmith.plan import Plan

BACKUPS = "/var/backups/goldsmith"
# A mark for each reload that is due, until it has succeeded: a run that fails or is cut off in between leaves files
# that are as promised, and the next one would have nothing to do.
PENDING = "/var/lib/goldsmith/pending"


@dataclass(frozen=True)
class Reload:
    """What has to hear of a changed file. name: its mark's. A program that isn't there needs nothing."""

    name: str
    pattern: str
    targets: tuple[Target, ...]
    command: str

    @property
    def mark(self) -> str:
        return quote(f"{PENDING}/{self.name}")


_LIVE: tuple[Target, ...] = ("live",)
_BOTH: tuple[Target, ...] = ("live", "image")
RELOADS = (
    Reload("daemon-reload", "/etc/systemd/system/*", _LIVE, "systemctl daemon-reload"),
    # DefaultLimit…= are read by the manager itself, and given to services that start after that
    Reload("daemon-reexec", "/etc/systemd/system.conf.d/*", _LIVE, "systemctl daemon-reexec"),
    Reload("udev", "/etc/udev/rules.d/*", _LIVE, "udevadm control --reload"),
    # a blacklist that isn't in the initramfs doesn't hold there: nouveau loads before the root is mounted
    Reload("initramfs", "/etc/modprobe.d/*", _BOTH,
           "if command -v update-initramfs >/dev/null && ls /boot/vmlinuz-* >/dev/null 2>&1;"
           " then update-initramfs -u -k all; fi"),
    Reload("grub", "/etc/default/grub.d/*", _BOTH, "if command -v update-grub >/dev/null; then update-grub; fi"),
)  # fmt: skip


def reloads(paths: list[str], target: Target) -> list[Reload]:
    """What has to run after these files changed, each once, in order."""
    return [one for one in RELOADS if target in one.targets and any(fnmatchcase(path, one.pattern) for path in paths)]


def mark(due: list[Reload], target: Target) -> Iterator[PyinfraCommand]:
    """Before any file is touched: say on the node what will be due. An image whose reload fails is never packed."""
    if due and target == "live":
        marks = " && ".join(f": > {one.mark}" for one in due)
        yield StringCommand(f"mkdir -p {PENDING} && {marks}")


def reload(due: list[Reload]) -> Iterator[PyinfraCommand]:
    """Run them; each one's mark goes when it has succeeded."""
    for one in due:
        yield StringCommand(f"{one.command} && rm -f {one.mark}")


def back_up(path: str, stamp: str) -> PyinfraCommand:
    """Copy what is there to BACKUPS: a hand edit was somebody's work. A folder is moved there: no rename can
    put a file in its place."""
    folder = QuoteString(f"{BACKUPS}{path}".rsplit("/", 1)[0])
    backup = QuoteString(f"{BACKUPS}{path}.{stamp}")
    there = QuoteString(path)
    return StringCommand(
        "if [ -e", there, "] || [ -L", there, "]; then mkdir -p -m 0700", QuoteString(BACKUPS), "&& mkdir -p", folder,
        "&& if [ -d", there, "] && [ ! -L", there, "]; then mv -T --", there, backup, "; else cp -a --", there, backup,
        "; fi; fi",
    )  # fmt: skip


def write(file: File, stamp: str, *, keep: bool) -> Iterator[PyinfraCommand]:
    """The commands that put one file there.

    The body goes by upload, never on a command line; the temporary file is private until it has its owner and
    mode. keep: what was there is backed up first.
    """
    path, temporary = QuoteString(file.path), QuoteString(f"{file.path}.goldsmith-new")
    if keep:
        yield back_up(file.path, stamp)
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
    target = plan.node.target
    due = reloads(paths, target)
    yield from mark(due, target)
    for path in paths:
        changed()
        yield from write(files[path], stamp, keep=target == "live")
    yield from reload(due)


@operation()
def leftovers(plan: Plan, stamp: str) -> Iterator[PyinfraCommand]:
    """Remove the files that no role promises any more, keeping a copy, and make up for reloads that never ran."""
    found = yield from differences(plan, ["stale", "pending"])
    # a part of the probe that failed is a difference, too: there is nothing to do about it
    found = [one for one in found if one.severity is not Severity.UNKNOWN]
    if found:
        changed()
    pending = [one.key for one in found if one.kind == "pending"]
    yield from clear([one.key for one in found if one.kind == "stale"], pending, stamp, plan.node.target)


def clear(stale: list[str], pending: list[str], stamp: str, target: Target) -> Iterator[PyinfraCommand]:
    """The commands that remove these files and do these reloads, and those that the removal asks for."""
    after = reloads(stale, target)
    yield from mark(after, target)
    for path in stale:
        if target == "live":
            yield back_up(path, stamp)
        yield StringCommand("rm -f --", QuoteString(path))
    due = [one for one in RELOADS if one in after or (one.name in pending and target in one.targets)]
    yield from reload(due)
    # of another version of goldsmith, or of no use here
    for name in sorted(set(pending) - {one.name for one in due}):
        yield StringCommand("rm -f --", QuoteString(f"{PENDING}/{name}"))
