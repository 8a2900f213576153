"""Desired against probe: every way in which a node differs from what its roles promise.

The audit makes findings of these differences and deploy makes commands of them. Both from one place: a deploy
that has nothing to change and an audit that has nothing to say are the same statement.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from goldsmith.compare_families import pins, strays
from goldsmith.compare_python import environments
from goldsmith.difference import PART, Difference, Kind, gap_of, unread
from goldsmith.model.desired import Desired
from goldsmith.model.finding import Severity
from goldsmith.model.probe import Probe
from goldsmith.model.resource import (
    File,
    KernelModule,
    Package,
    PackageFile,
    Sysctl,
    Unit,
)

__all__ = ["PART", "Difference", "Kind", "compare", "package_of"]


def compare(desired: Desired, probe: Probe) -> list[Difference]:
    """All differences, in the order in which they would be put right."""
    return [
        *_packages(desired, probe),
        *strays(desired, probe),
        *pins(desired, probe),
        *_contents(desired, probe),
        *environments(desired, probe),
        *_files(desired, probe),
        *_stale(probe),
        *_pending(probe),
        *_units(desired, probe),
        *_modules(desired, probe),
        *_sysctls(desired, probe),
        *_parameters(desired, probe),
    ]


def _packages(desired: Desired, probe: Probe) -> Iterator[Difference]:
    yield from unread("packages", desired.packages, probe)
    if "packages" not in probe.facts:
        return
    installed = probe.part("packages")
    for name, package in desired.packages.items():
        found = installed.get(name)
        if found is None:
            yield Difference("packages", name, package.version, "not installed")
        elif found["version"] != package.version or found["status"][1:2] != "i":
            evidence = [f"dpkg says {found['status'].strip()} {name} {found['version']}"]
            if package.held and not found["held"]:
                evidence.append("and it isn't held any more")
            state = "" if found["status"][1:2] == "i" else f" ({_DPKG_STATE.get(found['status'][1:2], 'broken')})"
            yield Difference(
                "packages",
                name,
                package.version,
                found["version"] + state,
                evidence=tuple(evidence),
                since=found.get("since", ""),
            )
        elif package.held and not found["held"]:
            yield Difference(
                "holds", name, "held", "not held", Severity.WARN, evidence=(f"no hold on {name} in dpkg's status",)
            )


_DPKG_STATE = {
    "U": "unpacked, not configured", "F": "half-configured", "H": "half-installed", "c": "removed",
    "n": "not installed", "W": "waiting for a trigger", "t": "waiting for a trigger",
}  # fmt: skip


def _contents(desired: Desired, probe: Probe) -> Iterator[Difference]:
    """Files inside packages whose content isn't the deb's, although dpkg says that the package is installed."""
    wanted = {path: (one, want) for one in desired.packages.values() for path, want in one.files.items()}
    yield from unread("contents", wanted, probe)
    if "package_files" not in probe.facts:
        return
    found = probe.part("package_files")
    installed = probe.part("packages")
    for path, (package, want) in wanted.items():
        if installed.get(package.name, {}).get("version") != package.version:
            continue  # told already, by the package
        have: Any = found.get(path)
        if gap := gap_of("contents", path, have):
            yield gap
            continue
        if (expected_actual := _content(want, have)) is not None:
            expected, actual = expected_actual
            yield Difference(
                "contents",
                path,
                f"{expected} as in {package.name} {package.version}",
                actual,
                evidence=(f"dpkg says {package.name} {package.version} is installed; the file isn't that package's",),
                since=have.get("ctime", have.get("mtime", "")),
            )


def _content(want: PackageFile, have: Mapping[str, Any]) -> tuple[str, str] | None:
    """What a package's file should be and is, or None if it is that."""
    if want.link is not None:
        seen = f"a link to {have.get('target')}" if have["type"] == "link" else _kind(have)
        return None if have.get("target") == want.link else (f"a link to {want.link}", seen)
    if have["type"] != "file":
        return f"sha256 {want.sha256[:12]}…", _kind(have)
    if have["size"] != want.size:
        return f"{want.size} bytes", f"{have['size']} bytes"
    if have.get("sha256") not in (None, want.sha256):
        return f"sha256 {want.sha256[:12]}…", f"sha256 {have['sha256'][:12]}…"
    return None


def _kind(have: Mapping[str, Any]) -> str:
    if have["type"] == "link":
        return f"a link to {have.get('target')}"
    return "absent" if have["type"] == "absent" else f"a {have['type']}"


def _files(desired: Desired, probe: Probe) -> Iterator[Difference]:
    yield from unread("files", desired.files, probe)
    found = probe.part("files")
    if "files" not in probe.facts:
        return
    for path, file in desired.files.items():
        have: Any = found.get(path)
        if gap := gap_of("files", path, have):
            yield gap
            continue
        expected, actual = [], []
        if have["type"] != "file":
            expected.append("a file")
            actual.append(_kind(have))
        else:
            for label, want, seen in _attributes(file, have):
                if want != seen:
                    expected.append(f"{label} {want}")
                    actual.append(f"{label} {seen}")
        if actual:
            yield Difference(
                "files",
                path,
                ", ".join(expected),
                ", ".join(actual),
                evidence=tuple(_edited_lines(file, have)),
                since=have.get("ctime", ""),
            )


def _attributes(file: File, have: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    digest = str(have.get("sha256"))
    # twelve digits are for reading; the whole is what is compared
    seen = f"sha256 {digest[:12]}…" if digest[:12] != file.sha256[:12] else f"sha256 {digest}"
    yield "content", f"sha256 {file.sha256[:12]}…", f"sha256 {file.sha256[:12]}…" if digest == file.sha256 else seen
    yield "mode", f"{file.mode:04o}", f"{have['mode']:04o}"
    yield "owner", f"{file.owner}:{file.group}", f"{have['owner']}:{have['group']}"


_SECRET = re.compile(r"(?i)(secret|token|passw|credential|api_?key|private|BEGIN )")


def _edited_lines(file: File, have: Mapping[str, Any], most: int = 6) -> Iterator[str]:
    """The lines that differ, as `- expected` and `+ found`. Whatever looks like a secret is not shown."""
    text = have.get("text")
    if file.secret or not isinstance(text, str):
        return
    lines = [
        line
        for line in difflib.unified_diff(file.content.splitlines(), text.splitlines(), n=0, lineterm="")
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    for line in lines[:most]:
        yield f"{line[0]} (a line that looks like a secret)" if _SECRET.search(line) else f"{line[0]} {line[1:]}"
    if len(lines) > most:
        yield f"… {len(lines) - most} more lines"


_UNTIL_REBOOT = ("/etc/sysctl.d/", "/etc/modprobe.d/", "/etc/modules-load.d/", "/etc/default/grub.d/")


def _stale(probe: Probe) -> Iterator[Difference]:
    """Files that an earlier deploy wrote and that no role promises any more."""
    if "stale_files" in probe.errors:
        reason = f"not read: {probe.errors['stale_files']}"
        yield Difference("stale", "files that no role promises", "readable", reason, Severity.UNKNOWN)
    for path, have in probe.part("stale_files").get("stale", {}).items():
        evidence = [f"its first lines say role {have['role']}" if have.get("role") else "its name says goldsmith"]
        if path.startswith(_UNTIL_REBOOT):
            evidence.append("what it has already set in the running kernel stays until a reboot")
        yield Difference(
            "stale",
            path,
            "no role promises it any more",
            "still there",
            evidence=tuple(evidence),
            since=have.get("ctime", ""),
            role=have.get("role", ""),
        )


def _pending(probe: Probe) -> Iterator[Difference]:
    """Reloads that files need which are already as promised: the run that wrote them failed or was cut off."""
    for name in probe.part("stale_files").get("pending", []):
        mark = f"/var/lib/goldsmith/pending/{name} is there"
        yield Difference("pending", name, "reloaded", f"a reload is still due: {name}", evidence=(mark,))


def _units(desired: Desired, probe: Probe) -> Iterator[Difference]:
    yield from unread("units", desired.units, probe)
    found = probe.part("units")
    if "units" not in probe.facts:
        return
    for name, unit in desired.units.items():
        have: Any = found.get(name)
        if gap := gap_of("units", name, have):
            yield gap
        else:
            yield from _unit(unit, have)


def _unit(unit: Unit, have: Mapping[str, Any]) -> Iterator[Difference]:
    if have["load"] == "not-found" and unit.state == "disabled":
        return  # what isn't there doesn't start
    if have["load"] == "not-found" and unit.state != "masked":
        yield Difference("units", unit.name, unit.state, "there is no such unit")
        return
    if have["load"] not in ("loaded", "masked", "not-found"):
        yield Difference("units", unit.name, unit.state, f"it can't be loaded ({have['load']})", live=True)
    # an alias counts as enabled; enabled-runtime and masked-runtime don't: they end at the next boot
    state = {"alias": "enabled"}.get(have["state"], have["state"])
    if have["load"] == "masked" and not state.endswith("-runtime"):
        state = "masked"
    fits = state == unit.state or (unit.state == "disabled" and state in ("static", "indirect", "masked"))
    if not fits:
        yield Difference("units", unit.name, unit.state, state or "not there", evidence=("systemctl show",))
        return
    active = have.get("active")
    if active is None or active == "":
        return  # not running: an image
    if unit.state == "masked" and active in ("active", "activating"):
        yield Difference("units", unit.name, "masked and stopped", f"masked but {active}", live=True)
    if unit.running is False and unit.state != "masked" and active in ("active", "activating"):
        yield Difference("units", unit.name, "not running", active, live=True)
    if unit.running and active != "active" and have.get("condition") is not False:
        yield Difference("units", unit.name, "running", _why_inactive(have), live=True)
    elif active == "failed" and unit.state == "enabled":
        yield Difference("units", unit.name, "not failed", f"failed ({have.get('result', '?')})", live=True)


def _why_inactive(have: Mapping[str, Any]) -> str:
    result = have.get("result", "")
    return f"{have['active']}{f' ({result})' if result not in ('', 'success') else ''}"


def _modules(desired: Desired, probe: Probe) -> Iterator[Difference]:
    """Only the running kernel's side; the files that say it are among the files. A container has no kernel."""
    if probe.container or probe.target == "image":
        return
    yield from unread("modules", desired.modules, probe)
    found = probe.part("modules")
    for name, module in desired.modules.items() if "modules" in probe.facts else ():
        have: Any = found.get(name)
        if gap := gap_of("modules", name, have):
            yield gap
        else:
            yield from _module(module, have)


def _module(module: KernelModule, have: Mapping[str, Any]) -> Iterator[Difference]:
    if module.state == "blacklisted":
        if have["loaded"]:
            yield Difference("modules", module.name, "never loaded", "loaded", evidence=("/sys/module",), live=True)
        return
    if not have["loaded"]:
        yield Difference("modules", module.name, "loaded", "not loaded", evidence=("/sys/module",), live=True)
        return
    for option, value in module.options.items():
        seen = have.get("parameters", {}).get(option)
        if seen is not None and _truth(seen) != _truth(value):
            yield Difference(
                "modules", f"{module.name} {option}", value, seen, evidence=("/sys/module/*/parameters",), live=True
            )


def _truth(value: str) -> str:
    """Module parameters read back booleans as Y and N, whatever was written."""
    return {"Y": "1", "N": "0", "y": "1", "n": "0"}.get(value.strip(), value.strip())


def _sysctls(desired: Desired, probe: Probe) -> Iterator[Difference]:
    if probe.target == "image":
        return
    yield from unread("sysctls", desired.sysctls, probe)
    found = probe.part("sysctls")
    for key, sysctl in desired.sysctls.items() if "sysctls" in probe.facts else ():
        have: Any = found.get(key)
        if gap := gap_of("sysctls", key, have):
            yield gap
        else:
            yield from _sysctl(sysctl, have, probe)


def _sysctl(sysctl: Sysctl, have: Mapping[str, Any], probe: Probe) -> Iterator[Difference]:
    # in a container, what isn't its own namespace's is the host's business: not applicable, so no finding
    if probe.container and (have.get("absent") or not have.get("writable", False)):
        return
    value = " ".join(sysctl.value.split())
    actual = "not in this kernel" if have.get("absent") else str(have.get("value"))
    if actual != value:
        yield Difference("sysctls", sysctl.key, value, actual, evidence=("/proc/sys",), live=True)


def _parameters(desired: Desired, probe: Probe) -> Iterator[Difference]:
    if probe.container or probe.target == "image" or not desired.parameters:
        return
    if "kernel" not in probe.facts:
        yield from unread("parameters", desired.parameters, probe)
        return
    words = probe.part("kernel").get("cmdline", [])
    for text in desired.parameters:
        if text not in words:
            yield Difference(
                "parameters", text, "on the kernel command line", "not there; it takes a reboot", live=True,
                evidence=("/proc/cmdline",),
            )  # fmt: skip


def package_of(desired: Desired, difference: Difference) -> Package | None:
    """The package that a difference of kind packages, holds or contents is about."""
    if difference.kind == "contents":
        return next((one for one in desired.packages.values() if difference.key in one.files), None)
    return desired.packages.get(difference.key)
