"""Core parts: system, kernel, sysctls, modules. Shipped to nodes: Python 3.8, standard library only."""

from __future__ import annotations

import os
import re
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from goldsmith.probe.node.run import Run

MODPROBE = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)


def os_facts(run: Run) -> dict[str, Any]:
    """Which distribution, which boot."""
    release = {}
    for line in (run.read("/etc/os-release") or run.read("/usr/lib/os-release") or "").splitlines():
        key, _, value = line.partition("=")
        release[key.strip()] = value.strip().strip("\"'")
    uptime = (run.read("/proc/uptime") or "").split()
    return {
        "id": release.get("ID", ""),
        "version_id": release.get("VERSION_ID", ""),
        "pretty": release.get("PRETTY_NAME", ""),
        "hostname": socket.gethostname(),
        "boot_id": (run.read("/proc/sys/kernel/random/boot_id") or "").strip(),
        "uptime_s": int(float(uptime[0])) if uptime else None,
    }


def kernel_facts(run: Run) -> dict[str, Any]:
    """The running kernel, those installed, the command line, and why a reboot is needed (empty: it isn't)."""
    images = [path[len("/boot/vmlinuz-") :] for path in run.glob("/boot/vmlinuz-*")]
    trees = [path.split("/")[-2] for path in run.glob("/lib/modules/*/modules.dep")]
    own = run.target == "live" and not run.container
    return {
        "running": (run.read("/proc/sys/kernel/osrelease") or os.uname().release).strip(),
        "installed": sorted(set(images) | set(trees), key=release_key),
        "cmdline": (run.read("/proc/cmdline") or "").split(),
        "reboot": reboot_reasons(run, images, trees) if own else [],
    }


def release_key(release: str) -> tuple[Any, ...]:
    """Orders kernel releases: by the numbers before the flavour, then by the text (6.12.9 < 6.12.117+deb13)."""
    return [int(number) for number in re.findall(r"\d+", re.sub(r"-[a-z][a-z0-9_-]*$", "", release))], release


def reboot_reasons(run: Run, images: list[str], trees: list[str]) -> list[str]:
    """Why this node must reboot, one sentence each."""
    running = (run.read("/proc/sys/kernel/osrelease") or os.uname().release).strip()
    reasons = []
    # an unattended update moves the next boot to another kernel and the driver is gone then
    # (GoogleCloudPlatform/compute-gpu-installation#25, nvidia-docker#804)
    newest = max(images, key=release_key) if images else running
    if release_key(newest)[0] > release_key(running)[0]:
        reasons.append(f"kernel {running} runs, {newest} is installed")
    if trees and running not in trees:
        reasons.append(f"the modules of the running kernel {running} are gone")
    if run.exists("/run/reboot-required"):
        packages = sorted(set((run.read("/run/reboot-required.pkgs") or "").split()))
        reasons.append("/run/reboot-required" + (": " + ", ".join(packages) if packages else ""))
    return reasons


def sysctl_facts(run: Run) -> dict[str, Any]:
    """key → its value and whether it can be written here; in a container vm.* and kernel.* can't."""
    found: dict[str, Any] = {}
    for key in run.want.get("sysctls") or []:
        path = sysctl_path(key)
        try:
            value = run.read(path)
        except PermissionError:  # write-only, or root's alone
            found[key] = {"error": "permission denied"}
            continue
        if value is None:
            found[key] = {"absent": True}
            continue
        writable = os.access(run.path(path), os.W_OK) and bool(os.stat(run.path(path)).st_mode & 0o200)
        found[key] = {"value": " ".join(value.split()), "writable": writable}
    return found


def sysctl_path(key: str) -> str:
    """As sysctl(8): the first separator is the one that counts, so net.ipv4.conf.eth0/100.rp_filter works."""
    slash, dot = key.find("/"), key.find(".")
    if slash != -1 and (dot == -1 or slash < dot):
        return "/proc/sys/" + key
    return "/proc/sys/" + key.translate(str.maketrans("./", "/."))


def module_facts(run: Run) -> dict[str, Any]:
    """name → whether it is loaded (or built in), its parameters that can be read, and who blacklists it."""
    running = (run.read("/proc/sys/kernel/osrelease") or os.uname().release).strip()
    built_in = {module_name(line) for line in (run.read(f"/lib/modules/{running}/modules.builtin") or "").split()}
    rules = [
        (path, run.read(path) or "") for folder in MODPROBE for path in run.glob(folder + "/*.conf")
    ]  # fmt: skip
    rules.append(("kernel command line", command_line_rules(run.read("/proc/cmdline") or "")))
    found = {}
    for name in run.want.get("modules") or []:
        plain = name.replace("-", "_")
        folder = "/sys/module/" + plain
        parameters = {}
        for path in run.glob(folder + "/parameters/*"):
            try:
                value = run.read(path)
            except PermissionError:
                continue
            if value is not None:
                parameters[path.rsplit("/", 1)[1]] = value.strip()
        by: list[str] = []
        for path, text in rules:
            if path not in by and any(blacklists(line, plain) for line in text.splitlines()):
                by.append(path)
        found[name] = {
            "loaded": run.exists(folder) or plain in built_in,
            "parameters": parameters,
            "blacklisted_by": by,
        }
    return found


def module_name(path: str) -> str:
    """kernel/drivers/a/b-c.ko.xz → b_c"""
    return path.rsplit("/", 1)[-1].split(".", 1)[0].replace("-", "_")


def command_line_rules(line: str) -> str:
    """module_blacklist=a,b and modprobe.blacklist=a,b as lines of a modprobe file."""
    names = re.findall(r"(?:^|\s)(?:module_blacklist|modprobe\.blacklist)=(\S+)", line)
    return "".join(f"blacklist {name}\n" for one in names for name in one.split(","))


def blacklists(line: str, name: str) -> bool:
    """Whether a line of modprobe.d keeps a module from loading."""
    words = line.split()
    if len(words) < 2 or words[1].replace("-", "_") != name:
        return False
    nothing = "".join(words[2:3]) in ("/bin/false", "/bin/true", "/usr/bin/false", "/usr/bin/true")
    return words[0] == "blacklist" or (words[0] == "install" and nothing)
