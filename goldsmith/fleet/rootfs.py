"""A root file system that isn't running: commands in it, by systemd-nspawn, without booting it.

Nothing here reads or writes below the tree from the outside: an absolute link in it would lead out onto this
machine (pyinfra's stock @chroot connector overwrote a build host's file that way, docs/measured.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from goldsmith import cgroups
from goldsmith.probe.bundle import PYTHON
from goldsmith.process import Done, run

# Without a machine bus (--register=no, --keep-unit) it runs on hosts that have no systemd of their own.
_NSPAWN = (
    "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--pipe", "--as-pid2", "--private-network",
    "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--settings=no",
)  # fmt: skip
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def nspawn_argv(tree: Path, command: Sequence[str], binds: Mapping[Path, str], *, read_only: bool = False) -> list[str]:
    """The command line that runs `command` in the tree. binds: host path → path inside, read-only. read_only: the
    tree can't be changed; /run and /tmp are the command's own, in memory, as always."""
    argv = [*_NSPAWN, *(["--read-only"] if read_only else []), f"--directory={tree}"]
    argv += [f"--setenv={name}={value}" for name, value in ENVIRONMENT.items()]
    argv += [f"--bind-ro={source}:{target}" for source, target in binds.items()]
    return [*argv, "--", *command]


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
) -> Done:
    """Run one command in the tree, as its root, with no network. read_only: see nspawn_argv."""
    argv = nspawn_argv(tree, command, binds or {}, read_only=read_only)
    hint = "install systemd-container" if check else ""
    with cgroups.in_ours():
        return run(argv, timeout=timeout, what=what, stdin=stdin, check=check, hint=hint)


def probe_tree(tree: Path, script: str, timeout: float = 60) -> str:
    """What the probe script prints in the tree."""
    return run_in_tree(tree, PYTHON, timeout=timeout, what=f"probe {tree.name}", stdin=script).out
