"""A root file system that isn't running: commands in it, by systemd-nspawn, without booting it.

Nothing here reads or writes below the tree from the outside: an absolute link in it would lead out onto this
machine (pyinfra's stock @chroot connector overwrote a build host's file that way, docs/measured.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from goldsmith import cgroups
from goldsmith.errors import GoldsmithError
from goldsmith.probe.bundle import PYTHON
from goldsmith.process import WITH_US, Done, run

# Without a machine bus (--register=no, --keep-unit) it runs on hosts that have no systemd of their own.
_NSPAWN = (
    "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", "--as-pid2", "--private-network",
    "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--settings=no",
)  # fmt: skip
# What systemd-nspawn itself touches in a tree, from outside. Version 252 opens /etc/machine-id as it is: of a link it
# reads this machine's file, and gives the container its id.
_PLAIN = ("dev", "etc", "proc", "run", "sys", "tmp", "usr", "var", "etc/machine-id")
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def nspawn_argv(
    tree: Path,
    command: Sequence[str],
    binds: Mapping[Path, str],
    *,
    read_only: bool = False,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line that runs `command` in the tree. binds: host path → path inside, read-only. read_only: the
    tree can't be changed; /run and /tmp are the command's own, in memory, as always. env: added to ENVIRONMENT."""
    argv = [*_NSPAWN, *(["--read-only"] if read_only else []), f"--directory={tree}"]
    argv += [f"--setenv={name}={value}" for name, value in {**ENVIRONMENT, **(env or {})}.items()]
    argv += [f"--bind-ro={source}:{target}" for source, target in binds.items()]
    return [*argv, "--", *command]


def require_plain(tree: Path) -> None:
    """Raise GoldsmithError if a link stands where every system has a folder or a file of its own."""
    for name in _PLAIN:
        path = tree / name
        if path.is_symlink():
            raise GoldsmithError(
                f"/{name} is a link to {os.readlink(path)}: nothing is run in such a tree", where=str(tree),
                hint="the tree isn't what a build makes: remove it and build again",
            )  # fmt: skip


def run_in_tree(
    tree: Path,
    command: Sequence[str],
    *,
    timeout: float,
    what: str,
    binds: Mapping[Path, str] | None = None,
    stdin: str | None = None,
    check: bool = True,
    read_only: bool = False,
    env: Mapping[str, str] | None = None,
) -> Done:
    """Run one command in the tree, as its root, with no network. read_only, env: see nspawn_argv. Raises GoldsmithError
    for a tree that nothing can be run in safely, and if the command fails, unless `check` is False."""
    require_plain(tree)
    # of systemd-nspawn alone it isn't true: what it runs outlives it
    argv = [*WITH_US, *nspawn_argv(tree, command, binds or {}, read_only=read_only, env=env)]
    with cgroups.in_ours():
        return run(argv, timeout=timeout, what=what, stdin=stdin, check=check)


def probe_tree(tree: Path, script: str, timeout: float = 60) -> str:
    """What the probe script prints in the tree."""
    return run_in_tree(tree, PYTHON, timeout=timeout, what=f"probe {tree.name}", stdin=script).out
