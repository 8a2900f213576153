"""uv, which resolves Python environments: how it is run, and what its errors mean for who edits image.yml.

Its index, proxies, certificates and credentials are the person's own, as uv reads them (netrc, uv.toml, UV_…);
what decides which versions come out is always said on its command line.
Facts: `uv pip compile --help` of the version in pyproject.toml.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from goldsmith.credentials import hide
from goldsmith.errors import GoldsmithError
from goldsmith.process import Done, run

TIMEOUT = 900.0


@dataclass(frozen=True)
class Target:
    """What is resolved for. python: 3.13. platform: as uv names it, x86_64-manylinux_2_40. index: asked first."""

    python: str
    platform: str
    index: str | None


def compile_(target: Target, folder: Path, cache: Path, *options: str, what: str) -> Done:
    """`uv pip compile requirements.in` in `folder`; the exit code is the caller's to judge.

    first-index: what the environment's own index has is taken from there alone; a higher version of the same name on
    another one is never taken (the pytorch-nightly incident of December 2022, torchtriton).
    """
    command = [
        # --python: looking for one takes uv half a second, and which it is doesn't matter
        find_uv_bin(), "pip", "compile", "requirements.in", "--python", sys.executable, "--cache-dir", str(cache),
        "--color", "never", "--no-progress", "--no-python-downloads", "--no-header", "--no-emit-index-url",
        "--only-binary", ":all:", "--python-version", target.python, "--python-platform", target.platform,
        "--index-strategy", "first-index", "--resolution", "highest", "--prerelease", "if-necessary",
        *(["--index", target.index] if target.index else []), *options,
    ]  # fmt: skip
    return run(command, timeout=TIMEOUT, what=what, check=False, cwd=folder)


def no_password(text: str) -> str:
    """Without the credentials of the addresses in it."""
    return hide(text)


def said(done: Done) -> tuple[str, list[str]]:
    """uv's error as one text, and its warnings of versions that their publisher took back."""
    text = no_password(done.err)
    warnings = [line.removeprefix("warning: ") for line in text.splitlines() if line.startswith("warning: ")]
    # others are about uv itself, or that the image's Python isn't on this machine, where nothing is built
    warnings = [one for one in warnings if "yanked" in one]
    error = text[text.find("error:") :] if "error:" in text else text
    lines = [re.sub(r"^(error|cause):\s*", "", line.strip()) for line in error.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith("warning:")), warnings


_UNREACHABLE = re.compile(r"Failed to fetch|error sending request|Request failed|dns error|timed out|HTTP status")
_MISSING = re.compile(r"there is no version of ([\w.-]+)\[?[\w,.-]*\]?==([^\s,;]+)")
_NO_WHEEL = re.compile(r"Because ([\w.-]+)(?:==(\S+))? has no usable wheels")
_UNKNOWN = re.compile(r"Because ([\w.-]+) was not found in the (?:package registry|cache)")


def explain(text: str, target: Target, where: str, near: str = "") -> GoldsmithError:
    """uv's error as one of ours. near: versions that are there, in words."""
    if refused := re.search(r"\b(401|403)\b", text):
        return GoldsmithError(
            f"the package index refuses us ({refused[1]}): {_short(text)}", where=where,
            hint="put the credentials into ~/.netrc, or into uv's own settings",
        )  # fmt: skip
    if _UNREACHABLE.search(text):
        return GoldsmithError(
            f"the package index can't be reached: {_short(text)}", where=where,
            hint="check the network, the proxy (HTTPS_PROXY) and the index, and run it again",
        )  # fmt: skip
    if match := _NO_WHEEL.search(text):
        name = f"{match[1]} {match[2]}" if match[2] else match[1]
        return GoldsmithError(
            f"{name} has no wheel for Python {target.python} on {target.platform}: {_short(text)}", where=where,
            hint=(f"{near}; " if near else "")
            + "require a version that has one, or build the wheel and put it on an index of your own",
        )  # fmt: skip
    if match := _MISSING.search(text):
        at = f" on {no_password(target.index)}, and what is there is taken from nowhere else" if target.index else ""
        return GoldsmithError(f"there is no {match[1]} {match[2]}: {_short(text)}", where=where,
                              hint=near or f"look at the versions it has{at}")  # fmt: skip
    if match := _UNKNOWN.search(text):
        return GoldsmithError(f"no index has a project {match[1]}", where=where, hint="is its name spelt right?")
    if "yanked" in text:
        return GoldsmithError(f"a version was taken back by its publisher: {_short(text)}", where=where,
                              hint="require another version")  # fmt: skip
    return GoldsmithError(f"the requirements can't be met together: {_short(text, 600)}", where=where,
                          hint="loosen one of them")  # fmt: skip


def wanting(text: str) -> tuple[str, str] | None:
    """The project and version that there is none of, or no wheel of; for a look at what there is."""
    match = _MISSING.search(text) or _NO_WHEEL.search(text)
    return (match[1], match[2] or "") if match else None


def guilty(text: str, names: Sequence[str]) -> int | None:
    """Which of the required projects (normalised names) uv's error is about: the first that it says we require."""
    required = re.findall(r"you require ([A-Za-z0-9][\w.-]*)", text) + re.findall(r"[A-Za-z0-9][\w.-]*", text)
    for one in required:
        plain = re.sub(r"[-_.]+", "-", one).lower().rstrip("-")
        if plain in names:
            return list(names).index(plain)
    return None


def _short(text: str, most: int = 400) -> str:
    text = re.sub(r"No solution found when resolving dependencies\s*|, we can conclude that your requirements are "
                  r"unsatisfiable|\s*hint: Wheels are required.*", "", text)  # fmt: skip
    return text if len(text) <= most else f"{text[: most - 1]}…"
