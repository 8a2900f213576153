"""Who may do what: files that everybody may write, programs with another's rights, devices, unknown owners."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping

from goldsmith.image.hygiene.known import CAPABILITIES, SETUID
from goldsmith.image.hygiene.rule import Expected, Rule, View, is_file, is_folder, is_link
from goldsmith.image.tree import Entry

# Everybody may write there, and the sticky bit keeps them apart.
_TEMPORARY = ("/tmp", "/var/tmp")
# What mmdebstrap makes and every system has; a disk or a GPU among them is the building machine's.
_DEVICES = re.compile(r"/dev/(console|full|null|ptmx|random|tty|urandom|zero|fuse|net/tun)")


def _writable(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.entries.values():
        mode = entry.stat.st_mode
        if entry.path.startswith(("/dev/", "/run/")) or is_link(entry) or not mode & stat.S_IWOTH:
            continue
        if entry.path.startswith(tuple(f"{one}/" for one in _TEMPORARY)):
            continue  # what is left there is a finding of its own
        if not is_folder(entry):
            yield entry.path, f"has mode {stat.S_IMODE(mode):04o}"
        elif not mode & stat.S_ISVTX:
            yield entry.path, f"is a folder of mode {stat.S_IMODE(mode):04o}, without the sticky bit"


def _setuid(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    users, groups = view.names_of("/etc/passwd"), view.names_of("/etc/group")
    for entry in view.entries.values():
        # on a folder, setgid only passes its group on
        if not is_file(entry) or not entry.stat.st_mode & (stat.S_ISUID | stat.S_ISGID):
            continue
        rights = _rights(entry, users, groups)
        packages, allowed = SETUID.get(entry.path, ("", ""))
        yield from _judge(view, expected, entry, packages if rights == allowed else "", f"runs with {rights}")


def _rights(entry: Entry, users: Mapping[int, str], groups: Mapping[int, str]) -> str:
    """`u:root`, `g:shadow`, or both."""
    status = entry.stat
    user = f"u:{users.get(status.st_uid, status.st_uid)}" if status.st_mode & stat.S_ISUID else ""
    group = f"g:{groups.get(status.st_gid, status.st_gid)}" if status.st_mode & stat.S_ISGID else ""
    return " ".join(filter(None, (user, group)))


def _capable(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.entries.values():
        if entry.capabilities:
            yield from _judge(view, expected, entry, CAPABILITIES.get(entry.path, ""), "has capabilities")


def _judge(view: View, expected: Expected, entry: Entry, packages: str, what: str) -> Iterator[tuple[str, str]]:
    """packages: those that may bring it, with these rights. dpkg must say that one has, and the lock must know it."""
    owner = view.owners.get(entry.path, "")
    if entry.path in expected.privileged or (owner in packages.split(",") and owner and owner in expected.packages):
        return
    yield entry.path, f"{what}; it is {f'of {owner}' if owner else 'of no package'}"


def _devices(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.entries.values():
        mode = entry.stat.st_mode
        if (stat.S_ISBLK(mode) or stat.S_ISCHR(mode)) and not (stat.S_ISCHR(mode) and _DEVICES.fullmatch(entry.path)):
            yield entry.path, f"is device {os.major(entry.stat.st_rdev)}:{os.minor(entry.stat.st_rdev)}"


def _owners(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    users, groups = view.names_of("/etc/passwd"), view.names_of("/etc/group")
    if not users or not groups:
        return  # what has no accounts isn't a system; the comparison with the lock has said so
    for entry in view.entries.values():
        if entry.stat.st_uid not in users:
            yield entry.path, f"is of user {entry.stat.st_uid}, whom /etc/passwd doesn't know"
        elif entry.stat.st_gid not in groups:
            yield entry.path, f"is of group {entry.stat.st_gid}, which /etc/group doesn't know"


RULES = (
    Rule("world-writable", "nobody but its owner writes a file, outside of /tmp and /var/tmp",
         "set its mode in the role that makes it (File has one), or report it to the package that ships it", _writable),
    Rule("setuid", "programs with another's rights are known, by path, package and rights",
         "if it must be so, name it in image.yml under hygiene.privileged; else take the bit away (dpkg-statoverride)",
         _setuid),
    Rule("capabilities", "programs with capabilities are known, by path and package",
         "if it must be so, name it in image.yml under hygiene.privileged; else `setcap -r`", _capable),
    Rule("device", "no device nodes but the standard ones in /dev: a node makes its own",
         "remove it in the role that leaves it", _devices),
    Rule("owner", "every file is of an account that the image has: another number is of the building machine, and "
         "becomes whoever gets it next", "`chown` it in the role that makes it", _owners),
)  # fmt: skip
