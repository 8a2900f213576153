"""Services that must not start by themselves, or can't: subnet managers, foreign arrays, units that aren't there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from goldsmith.image.hygiene.rule import Expected, Rule, View, is_link, name_of
from goldsmith.image.tree import Entry

_UNITS = ("/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
_SUBNET_MANAGER = re.compile(r"(opensmd?|nvlsm|opafm|ibsm)([@-].*)?")
_PRESETS = tuple(f"{folder}-preset" for folder in _UNITS)


def _wants(view: View) -> Iterator[tuple[Entry, str]]:
    """(link, unit) of all that some unit pulls in when it starts."""
    for entry in view.below(*_UNITS):
        folder = entry.path.split("/")[-2]
        if folder.endswith((".wants", ".requires", ".upholds")) and not (is_link(entry) and entry.link == "/dev/null"):
            yield entry, name_of(entry)


def _masked(view: View, unit: str) -> bool:
    entry = view.entries.get(f"/etc/systemd/system/{unit}")
    return entry is not None and is_link(entry) and entry.link == "/dev/null"


def _subnet_managers(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry, unit in _wants(view):
        manager = _SUBNET_MANAGER.fullmatch(unit.rpartition(".")[0])
        if manager and unit not in expected.enabled and not _masked(view, unit):
            yield entry.path, "is enabled, and no role promises it"
    for number in "2345":
        for entry in view.below(f"/etc/rc{number}.d"):
            script = re.fullmatch(r"S\d\d(.+)", name_of(entry))
            if script and _SUBNET_MANAGER.fullmatch(script[1]):
                # systemd makes a unit of it, unless there is one of this name
                unit = f"{script[1]}.service"
                native = any(f"{folder}/{unit}" in view.entries for folder in _UNITS)
                if not native and unit not in expected.enabled:
                    yield entry.path, "is enabled, and no role promises it"
    for entry in view.below(*_PRESETS):
        for line in view.lines(entry.path, comments="#;"):
            words = line.split()
            if len(words) > 1 and words[0] == "enable" and _SUBNET_MANAGER.fullmatch(words[1].removesuffix(".service")):
                yield entry.path, f"says `{line}`"


def _arrays(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    paths = ["/etc/mdadm.conf", *(one.path for one in view.below("/etc/mdadm", "/etc/mdadm.conf.d"))]
    for path in paths:
        if path in expected.files:
            continue
        for line in view.lines(path):
            # mdadm(8) takes a word for a keyword from its first three letters; <ignore> names no array
            words = line.split()
            if re.fullmatch(r"(?i)arr(ay?)?", words[0]) and "<ignore>" not in words[1:2]:
                yield path, f"names {words[1] if len(words) > 1 else 'an array'}"


def _missing(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry, unit in _wants(view):
        if not entry.path.startswith("/etc/"):
            continue  # a package's own, for a unit of another package
        template = re.sub(r"@.+\.", "@.", unit)
        there = any(f"{folder}/{name}" in view.entries for folder in _UNITS for name in (unit, template))
        if not there and not _generated(view, unit):
            yield entry.path, "is enabled, and isn't there"


def _generated(view: View, unit: str) -> bool:
    """A unit that systemd makes at boot: of an init script, of /etc/fstab, of a device."""
    name, _, kind = unit.rpartition(".")
    return kind in ("mount", "swap", "device") or f"/etc/init.d/{name}" in view.entries


RULES = (
    Rule("subnet-manager", "no subnet manager is enabled: one on every node takes a fabric over, or down",
         "disable it in the role that installs it, or promise it: Unit('opensm.service', 'enabled')", _subnet_managers),
    Rule("mdadm-array", "mdadm.conf names no array of another machine: mdadm looks for it at every boot, and a node's "
         "own becomes md127 (mrlesmithjr/ansible-mdadm#34)", "take the ARRAY lines out, or promise the file", _arrays),
    Rule("unit-missing", "every unit that is enabled is there", "disable it in the role that removes it", _missing),
)  # fmt: skip
