"""The package transaction of a node as data: what is to change, and the shell commands that do it.

Private lists, archives and sources: no other apt on the node is met there, and what it has cached stays as it is
(/var/lib/apt/lists has a lock that DPkg::Lock::Timeout doesn't cover, kubernetes-sigs/image-builder#2058).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote

from goldsmith.compare import Difference, package_of
from goldsmith.converge.connectors.rootfs import POOL_INSIDE
from goldsmith.model.desired import Desired
from goldsmith.model.lock import POOL_SOURCES, Lock
from goldsmith.model.node import Target

CACHE = "/var/cache/goldsmith"


def new_folder() -> str:
    """A transaction's own folder on the node."""
    return f"{CACHE}/apt-{secrets.token_hex(4)}"


@dataclass(frozen=True)
class Transaction:
    """install: name=version of what is missing or of another version. reinstall: packages whose files aren't
    theirs, or that dpkg was interrupted in. apart: the names of those that go before all others. unhold: holds that
    are in the way. hold: what must be held at the end and isn't, or won't be once it was changed. remove: names of
    an earlier lock's packages that those of this one conflict with."""

    install: tuple[str, ...] = ()
    reinstall: tuple[str, ...] = ()
    unhold: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    apart: frozenset[str] = field(default=frozenset())
    remove: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.install or self.reinstall or self.hold)

    def steps(self) -> list[Transaction]:
        """One, or two where packages bring apt preferences: those are installed before what they govern
        (NVIDIA's nvidia-driver-pinning-*; together it is unsatisfiable, NVIDIA/NemoClaw#8197). One, too, where
        packages are replaced: a node isn't left without either driver in between."""
        if self.remove:
            return [self]
        first, rest = self._only(self.apart), self._only(self.apart, inside=False)
        return [one for one in (first, rest) if one.install or one.reinstall]

    def _only(self, names: Collection[str], *, inside: bool = True) -> Transaction:
        def chosen(packages: Iterable[str]) -> tuple[str, ...]:
            return tuple(one for one in packages if (one.split("=")[0] in names) is inside)

        return Transaction(chosen(self.install), chosen(self.reinstall), chosen(self.unhold), chosen(self.hold))

    def replacing(self, names: Iterable[str], held: Collection[str]) -> Transaction:
        """The same, which also takes these away. apt never takes a held package away by itself, and not for
        --allow-change-held-packages either: it says `held broken packages` (NVIDIA/deepops#1123)."""
        gone = tuple(sorted(names))
        return replace(self, remove=gone, unhold=tuple(sorted({*self.unhold, *(set(gone) & set(held))})))


def plan_transaction(
    desired: Desired, found: Iterable[Difference], packages: Mapping[str, Mapping[str, object]], apart: Collection[str]
) -> Transaction:
    """What to do about the packages that differ. packages: as the node's probe has them. apart: see Transaction.

    Holds of packages that change are taken off before and set again after: a held package fails in apt, and
    --allow-change-held-packages drops the hold silently (docs/measured.md).
    """
    held = {name for name, one in packages.items() if one["held"]}
    install, reinstall, hold = {}, {}, set()
    for one in found:
        package = package_of(desired, one)
        if one.kind == "holds":
            hold.add(one.key)
        if package is None or one.kind == "holds":
            continue
        exact = f"{package.name}={package.version}"
        have = packages.get(package.name, {})
        if one.kind == "packages" and have.get("version") != package.version:
            install[package.name] = exact
        else:
            # of this version already, and not whole: apt would leave it alone
            reinstall[package.name] = exact
    reinstall = {name: exact for name, exact in reinstall.items() if name not in install}
    moving = {*install, *reinstall}
    wanted = set(desired.held())
    return Transaction(
        install=tuple(install[name] for name in sorted(install)),
        reinstall=tuple(reinstall[name] for name in sorted(reinstall)),
        unhold=tuple(sorted(moving & held)),
        # a hold that wasn't ours is set again, too: whoever set it had a reason
        hold=tuple(sorted(hold | (moving & (wanted | held)))),
        apart=frozenset(moving & set(apart)),
    )


@dataclass(frozen=True)
class Commands:
    """The shell lines of one transaction on one node. folder: its own, on the node."""

    lock: Lock
    target: Target
    folder: str

    def prepare(self) -> str:
        """Make the folder, with the pool as the only source in it; those of runs that were killed go after a day."""
        if self.target == "image":
            line = f"deb [signed-by={POOL_INSIDE}/goldsmith.asc] copy:{POOL_INSIDE} {self.lock.pool.suite} main"
            source = f"printf '%s\\n' {quote(line)} > {self.folder}/sources/goldsmith.list"
        else:
            # the role that manages the sources has written this file just before
            source = f"ln -sfT {POOL_SOURCES} {self.folder}/sources/goldsmith.sources"
        return (
            f"mkdir -p {self.folder}/sources {self.folder}/lists/partial {self.folder}/cache/archives/partial "
            f"&& {source} && find {CACHE} -mindepth 1 -maxdepth 1 -name 'apt-*' -mmin +1440 -exec rm -rf {{}} +"
        )

    def clean(self) -> str:
        """Remove the folder, and what stops services and DKMS in a tree."""
        line = f"rm -rf {self.folder}"
        if self.target == "image":
            ours = f"if grep -qsx {_OURS} {_NO_DKMS}; then rm -f {_NO_DKMS}; fi"
            line += f" && rm -f {_POLICY} && {ours} && rmdir --ignore-fail-on-non-empty -- {_DKMS_FOLDER}"
        return line

    def no_start(self) -> str:
        """Nothing may start in a tree that isn't running (invoke-rc.d asks this file), and DKMS builds nothing there:
        it would for the building machine's kernel, if the tree has one of that name, and dpkg shows its exit code in
        place of the compiler's line. Modules are built after the transaction (goldsmith.image.dkms).
        """
        dkms = f"mkdir -p {_DKMS_FOLDER} && {{ [ -e {_NO_DKMS} ] || echo {_OURS} > {_NO_DKMS}; }}"
        return f"printf '#!/bin/sh\\nexit 101\\n' > {_POLICY} && chmod 755 {_POLICY} && {dkms}"

    def wait(self) -> str:
        """Wait for other users of dpkg; wait_for_dpkg.py is the standard input."""
        return f'{_PATIENCE}; /usr/bin/python3 -I -S - "$wait"'

    def finish(self) -> str:
        """What an interrupted dpkg left is finished first: its journal, and what it had unpacked."""
        return f"{_ENVIRONMENT} dpkg --configure -a --force-confold < /dev/null"

    def update(self) -> str:
        return f"{self.get()} --error-on=any update"

    def simulate(self, what: Transaction) -> str:
        """Say what the transaction would do. Holds are still on then, and don't count."""
        return self._install(what, "--simulate", "--allow-change-held-packages")

    def change(self, what: Transaction) -> str:
        """Do it. Holds that were taken off are set again, even if apt fails in between: a node that lost its holds
        and kept its old driver is the next unattended upgrade's victim. It writes to a file: when the controller goes
        away, what it would have written to is closed, and apt must not die of that half-way.
        """
        unhold = f"{_MARK} unhold {_words(what.unhold)} && " if what.unhold else ""
        names = sorted({*what.unhold, *what.hold})
        log = f"{self.folder}/log"
        # of a package that was replaced, or never came, no hold remains
        hold = (
            f"dpkg-query -W -f '${{db:Status-Status}} ${{Package}}\\n' {_words(names)} 2>/dev/null "
            f"| sed -n '/^not-installed /d; /^config-files /d; s/^[^ ]* //p' | xargs -r {_MARK} hold"
            if names
            else ":"
        )
        return (
            f"( {unhold}{self._install(what)}; code=$?; {hold} || [ $code -ne 0 ] || code=1; exit $code ) "
            f"> {log} 2>&1 < /dev/null; code=$?; cat {log}; exit $code"
        )

    def hold(self, names: Iterable[str]) -> str:
        return f"{_MARK} hold {_words(names)}"

    def _install(self, what: Transaction, *options: str) -> str:
        flags = ["--no-install-recommends", "--allow-downgrades", *options]
        words = [*what.install, *what.reinstall, *(f"{name}-" for name in what.remove)]
        if what.reinstall:
            # apt reinstalls what is named and already there in this version, and installs the others as usual
            flags.append("--reinstall")
        return " ".join([self.get(), "install", *flags, "--", _words(words)])

    def get(self) -> str:
        """apt-get with the lock's pool as the only source it can see, and no question asked.

        Configuration files of packages are kept as they are: ours are already there when a package comes
        (--force-confold), and a file that a role manages is put right after it.
        """
        options = [
            "Dir::Etc::SourceList=/dev/null",
            f"Dir::Etc::SourceParts={self.folder}/sources",
            f"Dir::State::lists={self.folder}/lists",
            f"Dir::Cache={self.folder}/cache",
            "APT::Install-Recommends=false",
            "Acquire::Retries=3",
            "Dpkg::Options::=--force-confdef",
            "Dpkg::Options::=--force-confold",
        ]
        words = " ".join(f"-o {quote(option)}" for option in options)
        return f'{_PATIENCE}; {_ENVIRONMENT} apt-get -y {words} -o DPkg::Lock::Timeout="$wait"'


# without a cache: apt takes one for fresh if dpkg's status file is as long as before and of the same second, and then
# doesn't find what was installed in it
_MARK = "apt-mark -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache="
_POLICY = "/usr/sbin/policy-rc.d"
# dkms's own switch: packages' scripts and kernels' hooks ask it (/usr/lib/dkms/common.postinst). One with another
# content is somebody else's wish, and stays.
_DKMS_FOLDER = "/etc/dkms"
_NO_DKMS = f"{_DKMS_FOLDER}/no-autoinstall"
_OURS = "goldsmith-transaction"
_ENVIRONMENT = "DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l LC_ALL=C.UTF-8"
# how long the node's own apt waits for a lock, as a role has configured it
_PATIENCE = 'wait=; eval "$(apt-config shell wait DPkg::Lock::Timeout)"; wait="${wait:-120}"'


def _words(names: Iterable[str]) -> str:
    return " ".join(map(quote, names))
