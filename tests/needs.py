"""What a test needs of this machine: `pytestmark = needs("zstd")`, or on one test.

Looked up when the test runs, not when it is collected: on a new machine the lab's tests install much of it on the
way. As root it is installed, as goldsmith itself does; otherwise the test is skipped, and says what is missing.
"""

from __future__ import annotations

import os

import pytest

from goldsmith import host
from goldsmith.errors import GoldsmithError
from goldsmith.lock.tools import TOOLS

# tool → Debian package
PACKAGES = {
    **TOOLS, "zstd": "zstd", "bwrap": "bubblewrap", "ssh-keygen": "openssh-client", "setpriv": "util-linux",
    "mksquashfs": "squashfs-tools", "unsquashfs": "squashfs-tools",
}  # fmt: skip
# what a test of locking needs: not the bootstrap
APT = [tool for tool, package in TOOLS.items() if package != "mmdebstrap"]


def needs(*tools: str) -> pytest.MarkDecorator:
    """Programs, each a key of PACKAGES."""
    return pytest.mark.needs(*tools)


def see_to(tools: dict[str, str]) -> str:
    """Installs what isn't there, as root. Returns what is still missing and why, or nothing."""
    try:
        host.require_tools(tools, install=os.geteuid() == 0)
    except GoldsmithError as error:
        return str(error)
    return ""
