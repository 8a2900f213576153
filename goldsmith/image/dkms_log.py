"""What a build of a kernel module said: the one line that tells why it failed, and not dpkg's or make's exit code."""

from __future__ import annotations

import re

LONGEST = 400
# In this order: a patch that doesn't fit comes before any compiler runs, and a compiler before the linker's
# complaint; what make says of them is the last that anybody needs.
_REASONS = (
    re.compile(r"^\d+ out of \d+ hunks? FAILED.*|^can't find file to patch.*|^patch: \*\*\*\* .*|^Hunk #\d+ FAILED.*"),
    re.compile(r".*\b(fatal )?error: .*"),
    re.compile(r"^ERROR: modpost: .*"),
    re.compile(r".*(undefined reference|undefined symbol).*"),
    re.compile(r"^make(\[\d+\])?: \*\*\* .*"),
    re.compile(r"^(\S*/)?(sh|bash): .*not found.*"),
    re.compile(r"^E(RROR|rror)[:!] .*"),
)


def reason(log: str) -> str:
    """The first line that says why a build failed, or the last that it said; empty for an empty log."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for pattern in _REASONS:
        for line in lines:
            if pattern.fullmatch(line):
                return line[:LONGEST]
    return lines[-1][:LONGEST] if lines else ""
