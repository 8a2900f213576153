"""The programs and files of the machine that locking needs, and the Debian packages that have them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.lock.apt import HELPER
from goldsmith.lock.sources import KEYRING_PACKAGES, KEYRINGS
from goldsmith.process import run

# tool → Debian package; one that starts with / is a file
TOOLS: dict[str, str] = {
    "apt-get": "apt",
    "apt-config": "apt",
    HELPER: "apt",
    "dpkg-deb": "dpkg",
    "dpkg-query": "dpkg",
    "apt-ftparchive": "apt-utils",
    "gpg": "gpg",
    "gpg-agent": "gpg-agent",
    "gpgconf": "gpgconf",
    "mmdebstrap": "mmdebstrap",
}
# For the lab, which installs what it lacks; a lock says itself which distribution's keys aren't here.
LAB_TOOLS: dict[str, str] = {**TOOLS, KEYRINGS["debian"]: KEYRING_PACKAGES["debian"]}


def missing_tools(tools: Mapping[str, str] = TOOLS) -> list[str]:
    """The tools that this machine hasn't got."""
    return [tool for tool in tools if not (Path(tool).is_file() if tool.startswith("/") else shutil.which(tool))]


def require_tools(tools: Mapping[str, str] = TOOLS) -> None:
    """Raises GoldsmithError with the line that installs what is missing."""
    if missing := missing_tools(tools):
        packages = sorted({tools[tool] for tool in missing})
        raise GoldsmithError(
            f"this machine lacks {', '.join(missing)}",
            where="locking",
            hint=f"apt-get install --no-install-recommends {' '.join(packages)}",
        )


def tool_versions(*, wheels: bool) -> dict[str, str]:
    """The versions of what made the choice: apt and dpkg, and with `wheels` uv."""
    done = run(
        ["dpkg-query", "--show", "--showformat=${Package} ${Version}\\n", "apt", "dpkg"],
        timeout=30,
        what="read the tools' versions",
    )
    found = dict(line.split(" ", 1) for line in done.out.splitlines())
    return {**found, "uv": version("uv")} if wheels else found
