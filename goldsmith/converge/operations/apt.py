"""Packages: one transaction a node, simulated first, refused if it would do anything the lock doesn't name.

pyinfra's apt.packages can't hold, pin or be refused, and apt itself resolves a pinned metapackage's
dependencies to whatever is newest (NVIDIA/NemoClaw#8207): so exact versions of everything, the pool as the only
source, no removal, and the result read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from shlex import quote

from pyinfra import logger
from pyinfra.api import FunctionCommand, StringCommand, operation
from pyinfra.api.command import PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from goldsmith.compare import Difference, package_of
from goldsmith.converge.connectors.rootfs import POOL_INSIDE
from goldsmith.converge.host import changed, differences, this_probe
from goldsmith.model.desired import Desired
from goldsmith.model.lock import POOL_SOURCES, Lock
from goldsmith.model.node import Target
from goldsmith.plan import Plan

TIMEOUT = 3600
# apt's folder of sources while a transaction runs on a node: the pool's alone
ONLY = "/run/goldsmith-sources"


@dataclass(frozen=True)
class Transaction:
    """install: name=version of what is missing or of another version. reinstall: packages whose files aren't
    theirs. hold: what must be held at the end and isn't, or won't be once it was changed."""

    install: tuple[str, ...]
    reinstall: tuple[str, ...]
    unhold: tuple[str, ...]
    hold: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.install or self.reinstall or self.hold)


def plan_transaction(desired: Desired, found: Iterable[Difference], held: Iterable[str]) -> Transaction:
    """What to do about the packages that differ. held: the packages that are held now.

    Holds of packages that change are taken off before and set again after: a held package fails in apt, and
    --allow-change-held-packages drops the hold silently (docs/measured.md).
    """
    install, reinstall, hold = {}, {}, set()
    for one in found:
        package = package_of(desired, one)
        if package is None:
            continue
        exact = f"{package.name}={package.version}"
        if one.kind == "packages":
            install[package.name] = exact
        elif one.kind == "contents":
            reinstall[package.name] = exact
        else:
            hold.add(package.name)
    reinstall = {name: exact for name, exact in reinstall.items() if name not in install}
    moving = {*install, *reinstall}
    wanted = set(desired.held())
    return Transaction(
        install=tuple(install[name] for name in sorted(install)),
        reinstall=tuple(reinstall[name] for name in sorted(reinstall)),
        unhold=tuple(sorted(moving & set(held))),
        # a hold that wasn't ours is set again, too: whoever set it had a reason
        hold=tuple(sorted(hold | (moving & (wanted | set(held))))),
    )


def apt_get(lock: Lock, target: Target) -> str:
    """apt-get with the lock's pool as the only source it can see, and no question asked.

    Configuration files of packages are kept as they are: ours are already there when a package comes
    (--force-confold), and a file that a role manages is put right after it.
    """
    options = [
        "Dir::Etc::SourceList=/dev/null",
        "Dir::Etc::SourceParts=/dev/null",
        # other sources' lists on the node stay as they are
        "APT::Get::List-Cleanup=false",
        "APT::Install-Recommends=false",
        "Acquire::Retries=3",
        "Dpkg::Options::=--force-confdef",
        "Dpkg::Options::=--force-confold",
    ]
    if target == "image":
        options[0] = "Dir::Etc::SourceList=/run/goldsmith-pool.list"
    else:
        options[1] = f"Dir::Etc::SourceParts={ONLY}"
    words = " ".join(f"-o {quote(option)}" for option in options)
    environment = "DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l"
    return f"{sources(lock, target)} && {environment} apt-get -y {words}"


def sources(lock: Lock, target: Target) -> str:
    """Lay down the one source that a transaction sees. With every apt-get: a tree's /run lasts for one command."""
    if target == "image":
        line = f"deb [signed-by={POOL_INSIDE}/goldsmith.asc] copy:{POOL_INSIDE} {lock.pool.suite} main"
        return f"printf '%s\\n' {quote(line)} > /run/goldsmith-pool.list"
    # the role that manages the sources has written this file just before
    return f"mkdir -p {ONLY} && ln -sfT {POOL_SOURCES} {ONLY}/goldsmith.sources"


def simulate(lock: Lock, target: Target, what: Transaction) -> str:
    """The command that says what the transaction would do. Holds are still on then, and don't count."""
    return _install(lock, target, what, "--simulate", "--allow-change-held-packages")


def change(lock: Lock, target: Target, what: Transaction) -> str:
    """The command that does it. Holds that were taken off are set again, even if apt fails in between: a node
    that lost its holds and kept its old driver is the next unattended upgrade's victim."""
    install = _install(lock, target, what)
    if not what.unhold:
        return install
    names = " ".join(map(quote, what.unhold))
    return f"apt-mark unhold {names} && {{ {install}; code=$?; apt-mark hold {names}; (exit $code); }}"


def _install(lock: Lock, target: Target, what: Transaction, *options: str) -> str:
    packages = [*what.install, *what.reinstall]
    flags = ["--no-install-recommends", "--allow-downgrades", *options]
    if what.reinstall:
        # apt reinstalls what is named and already there in this version, and installs the others as usual
        flags.append("--reinstall")
    return " ".join([apt_get(lock, target), "install", *flags, "--", *map(quote, packages)])


_INST = re.compile(r"^Inst (?P<name>\S+) (?:\[[^\]]*\] )?\((?P<version>\S+) (?P<origin>[^)]*?)\s*\[")
_REMV = re.compile(r"^(?:Remv|Purg) (?P<name>\S+)")


def refusals(output: str, lock: Lock) -> list[str]:
    """Why a simulated transaction may not run: each removal, and each package that the lock doesn't name so.

    Takes apt-get's --simulate output (C.UTF-8); an empty list means that it may.
    """
    reasons = []
    for line in output.splitlines():
        if match := _REMV.match(line):
            reasons.append(f"it would remove {match['name']}")
        elif match := _INST.match(line):
            name, version = match["name"].split(":")[0], match["version"]
            locked = lock.packages.get(name)
            if locked is None:
                reasons.append(f"it would install {name} {version}, which isn't in the lock")
            elif locked.version != version:
                reasons.append(f"it would install {name} {version}; the lock has {locked.version}")
            elif not match["origin"].startswith(f"{lock.pool.origin}:"):
                reasons.append(f"it would take {name} from {match['origin'] or 'an unnamed origin'}, not the pool")
        elif line.startswith("Inst "):
            reasons.append(f"apt says something this version of goldsmith can't read: {line}")
    return reasons


# Nothing may start in a tree that isn't running (invoke-rc.d asks this file).
_NO_START = "printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d"


@operation()
def transaction(plan: Plan) -> Iterator[PyinfraCommand]:
    """Bring every package of the lock to its version and its content, and hold what is to be held."""
    found = yield from differences(plan, ["packages", "holds", "contents"])
    if not found:
        return
    packages = this_probe(plan).part("packages")
    held = [name for name, one in packages.items() if one["held"]]
    what = plan_transaction(plan.desired, found, held)
    lock, target = plan.lock, plan.node.target
    changed()
    if what.install or what.reinstall:
        if target == "image":
            yield StringCommand(_NO_START)
        if any(one["status"][1:2] in "UFHWt" for one in packages.values()):
            # a node that lost power in a transaction is finished first
            yield StringCommand("dpkg --configure -a --force-confold", _timeout=TIMEOUT)
        yield StringCommand(f"{apt_get(lock, target)} --error-on=any update", _timeout=600)
        yield FunctionCommand(refuse_surprises, (plan, what), {})
        yield StringCommand(change(lock, target, what), _timeout=TIMEOUT)
        yield StringCommand("rm -f /usr/sbin/policy-rc.d" if target == "image" else f"rm -rf {ONLY}")
        yield StringCommand("apt-get clean")
    if hold := sorted(set(what.hold) - set(what.unhold)):
        yield StringCommand("apt-mark hold", *map(quote, hold))


def refuse_surprises(state: State, host: Host, plan: Plan, what: Transaction) -> bool:
    """Simulate; False, with the reasons logged, if the transaction would do what the lock doesn't say."""
    command = simulate(plan.lock, plan.node.target, what)
    sudo = bool(host.data.get("_sudo", False))
    status, output = host.run_shell_command(StringCommand(command), _timeout=300, _sudo=sudo)
    if not status:
        host.log(f"apt can't do this; nothing was changed: {output.stderr or output.stdout}", logger.error)
        return False
    if reasons := refusals(output.stdout, plan.lock):
        told = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
        host.log(
            f"refused, nothing was changed: {told}. Remove by hand what stands in the way, or add it to the image.",
            logger.error,
        )
        return False
    return True
