"""What apt says of a transaction: whether it may run, what goes back, what is replaced; in a line, why it failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from goldsmith.lock.apt import conflict
from goldsmith.model.lock import Lock

_INST = re.compile(r"^Inst (?P<name>\S+) (?:\[(?P<old>[^\]]*)\] )?\((?P<version>\S+) (?P<origin>[^)]*?)\s*\[")
_REMV = re.compile(r"^(?:Remv|Purg) (?P<name>\S+)(?: \[(?P<version>[^\]]*)\])?")


@dataclass(frozen=True)
class Said:
    """A simulation. refused: why it may not run. back: `NAME OLD → NEW` of what goes to a lower version.
    replaced: packages of an earlier lock's family that those of this lock's take the place of."""

    refused: tuple[str, ...]
    back: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


def read_simulation(
    output: str, lock: Lock, recorded: Mapping[str, str], packages: Mapping[str, Mapping[str, object]]
) -> Said:
    """Takes apt-get's --simulate output (C.UTF-8). recorded: package → family of the lock that the node was last
    brought to. packages: as the node's probe has them.

    A removal is refused, but for one: what an earlier lock had in a family that this lock has, too, may be replaced
    by it. A new driver branch has new package names, which conflict with the old ones (NVIDIA/deepops#1123:
    450 → 460 couldn't be upgraded); what no lock has put there is somebody's.
    """
    refused, replaced, moved, old = [], [], {}, {}
    replaceable = outdated(lock, recorded)
    for line in output.splitlines():
        if match := _REMV.match(line):
            name = match["name"].split(":")[0]
            if name in replaceable:
                replaced.append(name)
            else:
                refused.append(f"it would remove {match['name']}")
        elif match := _INST.match(line):
            name, version = match["name"].split(":")[0], match["version"]
            moved[name], old[name] = version, match["old"]
            locked = lock.packages.get(name)
            if locked is None:
                refused.append(f"it would install {name} {version}, which isn't in the lock")
            elif locked.version != version:
                refused.append(f"it would install {name} {version}; the lock has {locked.version}")
            elif not match["origin"].startswith(f"{lock.pool.origin}:"):
                refused.append(f"it would take {name} from {match['origin'] or 'an unnamed origin'}, not the pool")
        elif line.startswith("Inst "):
            refused.append(f"apt says something this version of goldsmith can't read: {line}")
    if not refused:
        have = {name: str(one["version"]) for name, one in packages.items()}
        refused += half_families(lock, {**have, **moved})
    back = [f"{name} {old[name]} → {moved[name]}" for name in downgraded(output) if name in moved]
    return Said(tuple(refused), tuple(back), tuple(replaced))


def outdated(lock: Lock, recorded: Mapping[str, str]) -> set[str]:
    """Packages of an earlier lock's families that this lock doesn't have, of families that it has."""
    families = {one.family for one in lock.packages.values() if one.family}
    return {name for name, family in recorded.items() if family in families and name not in lock.packages}


def half_families(lock: Lock, versions: Mapping[str, str]) -> list[str]:
    """Families of which a part wouldn't be as locked. versions: package → version, at the end."""
    wrong: dict[str, list[str]] = {}
    for one in lock.packages.values():
        if one.family and versions.get(one.name) != one.version:
            wrong.setdefault(one.family, []).append(f"{one.name} {versions.get(one.name, 'not installed')}")
    return [
        f"family {family} would be half of another version: {', '.join(names[:4])}" for family, names in wrong.items()
    ]


def downgraded(output: str) -> list[str]:
    """The packages that apt lists as such."""
    match = re.search(r"^The following packages will be DOWNGRADED:\n((?:  .*\n?)*)", output, re.M)
    return [name.split(":")[0] for name in match[1].split()] if match else []


def read_record(text: str) -> dict[str, str]:
    """package → family, of the file that goldsmith.model.lock.FAMILIES names."""
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {row[0]: row[1] for row in rows if len(row) == 2}


# apt's words → what to say of them; {host} and {url} are apt's
_REASONS = (
    (r"Could not resolve '(?P<host>[^']*)'", "its name {host} isn't known on the node"),
    (r"Could not connect to (?P<host>\S+)[^\n]*(?:refused|111)", "nothing listens at {host}"),
    (r"[Cc]onnection timed out|Could not connect|Unable to connect|Network is unreachable", "it can't be reached"),
    (r"404 +(?P<host>Not Found)|does not have a Release file", "it doesn't serve this image"),
    (r"NO_PUBKEY|isn't signed|is not signed|Missing key|verification", "its index isn't signed with the lock's key"),
    (r"Hash Sum mismatch|unexpected size", "a file in it isn't what its index says"),
)


def why_no_update(output: str) -> str:
    """Why the pool's index couldn't be fetched, in one sentence, and what to do. apt says it in twelve lines."""
    url = re.search(r"(?:Failed to fetch|The repository '|Err:\d+) *([a-z]+:/[^\s']*?)(?:/?dists/\S*)?[\s']", output)
    for pattern, reason in _REASONS:
        if match := re.search(pattern, output):
            told = reason.format(host=match.groupdict().get("host", ""))
            break
    else:
        told = errors(output)
    named = f" {url[1]}" if url else ""
    return (
        f"the pool{named} gives no packages: {told}. Serve it (`goldsmith pool serve`; "
        "a lab's own: `goldsmith lab up`), or set base_pool_url to where it is; nothing was changed"
    )


def why_not(output: str) -> str:
    """Why apt or dpkg failed: who holds a lock, which packages can't be together, or its own words."""
    if match := re.search(r"held by process (\d+) \(([^)]*)\)", output):
        return f"process {match[1]} ({match[2]}) holds a lock of dpkg or apt"
    if "unmet dependencies" in output:
        return conflict(output, "")
    return errors(output)


def errors(output: str, most: int = 6) -> str:
    """The lines that say what went wrong."""
    # dpkg gives its reason in the line below: "dpkg: error processing archive x.deb (--unpack):\n unable to …"
    lines = re.sub(r"^(dpkg: error .*:)\n +(?=\S)", r"\1 ", output, flags=re.MULTILINE).splitlines()
    told = [line for line in lines if re.match(r"E: |dpkg: (error|warning)|W: ", line)] or lines[-most:]
    return "; ".join(dict.fromkeys(line.strip() for line in told[:most])) or "it said nothing"


def shown(reasons: Iterable[str], most: int = 5) -> str:
    """The first of them, and how many more."""
    told = list(reasons)
    return "; ".join(told[:most]) + (f"; and {len(told) - most} more" if len(told) > most else "")
