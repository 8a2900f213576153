"""What a build of a kernel module said: the one line that tells why it failed, and not dpkg's or make's exit code."""

from __future__ import annotations

import re

LONGEST = 400
# In this order: a patch that doesn't fit comes before any compiler runs, and a compiler before the linker's
# complaint; what make says of them is the last that anybody needs.
_HUNK = re.compile(r"\d+ out of \d+ hunks? FAILED.*|can't find file to patch.*|patch: \*\*\*\* .*|Hunk #\d+ FAILED.*")
_REASONS = (
    _HUNK,
    re.compile(r".*\b(fatal )?error: .*"),
    re.compile(r"ERROR: modpost: .*"),
    re.compile(r".*(undefined reference|undefined symbol).*"),
    re.compile(r"make(\[\d+\])?: \*\*\* .*"),
    re.compile(r"(\S*/)?(sh|bash): .*not found.*"),
    re.compile(r"E(RROR|rror)[:!] .*"),
)
# Which patch, and of which file: what comes before a hunk's line.
_PATCHES = (re.compile(r"# command: patch -p1 < \./patches/(\S+)"), re.compile(r"patching file (\S+)"))
# What dkms writes below each command's output.
_RULED = re.compile(r"-{5,}|# exit code: .*|# elapsed time: .*")


def reason(*texts: str) -> str:
    """The first line that says why a build failed, of the first text that has one: its log, then what dkms said. If
    none has, the last line that was said; empty if nothing was."""
    last = ""
    for text in texts:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        for pattern in _REASONS:
            for number, line in enumerate(lines):
                if pattern.fullmatch(line):
                    return (_patch(lines[:number]) + line if pattern is _HUNK else line)[:LONGEST]
        last = last or next((line for line in reversed(lines) if not _RULED.fullmatch(line)), "")
    return last[:LONGEST]


def _patch(before: list[str]) -> str:
    """`x.patch: hello.c: `, as far as the lines before tell."""
    found = [[match[1] for line in before if (match := pattern.fullmatch(line))] for pattern in _PATCHES]
    return "".join(f"{names[-1]}: " for names in found if names)
