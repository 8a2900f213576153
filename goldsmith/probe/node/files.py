"""Core parts: managed files, and files of packages. Shipped to nodes: Python 3.8, standard library only."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goldsmith.probe.node.run import Run

TEXT_LIMIT = 8 * 1024
MANAGED_LIMIT = 64 * 1024 * 1024
# Files of packages up to this are hashed, larger ones only by a deep probe: PyTorch's and cuDNN's libraries
# are gigabytes, and one core hashes 0.3 to 1.5 GB/s. (`hash_always` names those that are hashed at any size.)
HASH_LIMIT = 64 * 1024 * 1024
# Where roles lay down files of their own; by these names they are ours, in OURS by their first lines.
NAMED = [f"/etc/{folder}/*goldsmith*" for folder in (
    "sysctl.d", "modprobe.d", "modules-load.d", "default/grub.d", "security/limits.d", "systemd/system.conf.d",
    "systemd/system/*.d", "apt/apt.conf.d", "apt/preferences.d", "apt/sources.list.d", "needrestart/conf.d",
)]  # fmt: skip
OURS = "/etc/goldsmith/*"
HEADER = re.compile(r"# Managed by goldsmith(?:, role (?P<role>[A-Za-z0-9_-]+):)?")
HEADER_LINES = 5
# A mark for every reload that a deploy owes to files that it has written (goldsmith/converge/operations/files.py).
PENDING = "/var/lib/goldsmith/pending/*"
KINDS = {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFDIR: "directory"}


def file_facts(run: Run) -> dict[str, Any]:
    """path → type, mode, owner, sha256 …; the text too where it isn't the expected one and no secret."""
    secret = set(run.want.get("secret_files") or [])
    wanted = run.want.get("files") or {}
    return {path: describe(run, path, expected, path in secret) for path, expected in wanted.items()}


def describe(run: Run, path: str, expected: Any, secret: bool) -> dict[str, Any]:
    """One managed file. A link is never followed: it would show another file's content."""
    try:
        status = os.lstat(run.path(path))
    except (FileNotFoundError, NotADirectoryError):
        return {"type": "absent"}
    except OSError as error:
        return {"error": error.strerror}
    facts = {
        "type": KINDS.get(stat.S_IFMT(status.st_mode), "other"),
        "mode": stat.S_IMODE(status.st_mode),
        "owner": owner_name(status.st_uid),
        "group": group_name(status.st_gid),
        "size": status.st_size,
        "mtime": run.iso(status.st_mtime),
        "ctime": run.iso(status.st_ctime),
    }
    try:
        if facts["type"] == "link":
            facts["target"] = os.readlink(run.path(path))
        elif facts["type"] == "file" and status.st_size > MANAGED_LIMIT:
            facts["error"] = f"larger than {MANAGED_LIMIT >> 20} MiB, not read"
        elif facts["type"] == "file":
            content = read_plain(run.path(path))
            facts["sha256"] = hashlib.sha256(content).hexdigest()
            # nor of a file that not everyone may read, should a role have forgotten to call it secret
            shown = not secret and bool(status.st_mode & 0o004) and len(content) <= TEXT_LIMIT
            if shown and expected and facts["sha256"] != expected:
                facts["text"] = content.decode("utf-8")
    except UnicodeDecodeError:
        pass
    except OSError as error:
        facts["error"] = error.strerror
    return facts


def stale_facts(run: Run) -> dict[str, Any]:
    """`stale`: files that an earlier deploy wrote and nothing promises now; `pending`: reloads that are due.

    Without promises to compare with there is nothing stale.
    """
    pending = [os.path.basename(path) for path in run.glob(PENDING)]
    wanted = run.want.get("files")
    if wanted is None:
        return {"stale": {}, "pending": pending}
    # what a deploy has under way, or left when it was killed: the next one overwrites it
    wanted = {*wanted, *(f"{path}.goldsmith-new" for path in wanted)}
    named = {path for pattern in NAMED for path in run.glob(pattern)}
    stale = {}
    for path in sorted(named.union(run.glob(OURS)) - wanted):
        try:
            status = os.lstat(run.path(path))
        except FileNotFoundError:
            continue  # it went while we looked
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "other")
        match = header(run, path) if kind == "file" else None
        by_name = kind in ("file", "link") and (path in named or "goldsmith" in os.path.basename(path))
        if match or by_name:
            stale[path] = {
                "type": kind,
                "role": (match and match.group("role")) or "",
                "ctime": run.iso(status.st_ctime),
            }
    return {"stale": stale, "pending": pending}


def header(run: Run, path: str) -> re.Match[str] | None:
    """The line by which a file says that goldsmith wrote it, among its first lines."""
    lines = (run.read(path, limit=4096) or "").splitlines()[:HEADER_LINES]
    return next((match for match in map(HEADER.match, lines) if match), None)


def read_plain(path: str) -> bytes:
    """The content; a link that took the file's place meanwhile is refused, a fifo doesn't block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        return file.read(MANAGED_LIMIT + 1)


def owner_name(number: int) -> str:
    # root without a look-up: a hanging directory service must not hide who owns /etc
    if number == 0:
        return "root"
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def group_name(number: int) -> str:
    if number == 0:
        return "root"
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def package_file_facts(run: Run) -> dict[str, Any]:
    """path → type, size, mtime, ctime, and sha256 of files up to HASH_LIMIT (of every file in a deep probe)."""
    wanted = run.want.get("package_files") or []
    always = set(run.want.get("hash_always") or [])
    # hashing releases Python's lock; the largest file sets the time, so the node's other cores stay free
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return dict(pool.map(lambda path: describe_package_file(run, path, path in always), wanted))


def describe_package_file(run: Run, path: str, always: bool = False) -> tuple[str, dict[str, Any]]:
    """One file of a package. dpkg's own database isn't asked: it doesn't know that a file was replaced."""
    try:
        status = os.lstat(run.path(path))
    except (FileNotFoundError, NotADirectoryError):
        return path, {"type": "absent"}
    except OSError as error:
        return path, {"error": error.strerror}
    facts = {
        "type": KINDS.get(stat.S_IFMT(status.st_mode), "other"),
        "size": status.st_size,
        "mtime": run.iso(status.st_mtime),
        # `cp -p` and dpkg set the former; the latter says when it came to this node
        "ctime": run.iso(status.st_ctime),
    }
    if facts["type"] == "link":
        facts["target"] = os.readlink(run.path(path))
    if facts["type"] == "file" and (always or run.deep or status.st_size <= HASH_LIMIT):
        try:
            facts["sha256"] = run.sha256(path)
        except OSError as error:
            facts["error"] = error.strerror
    return path, facts
