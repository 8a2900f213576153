"""Debian versions: their order, and whether one matches a pin by upstream version.

Facts: Debian policy 5.6.12; the order is dpkg's own, kept in step with it by tests/contract/test_apt_versions.py.
"""

from __future__ import annotations

import re

from goldsmith.model.lock import upstream

_Part = tuple[tuple[tuple[int, ...], int], ...]


def sort_key(version: str) -> tuple[int, _Part, _Part]:
    """A key that sorts versions as dpkg does: `1.0~rc1` before `1.0` before `1.0+dfsg`."""
    epoch, colon, rest = version.partition(":")
    if not colon or not epoch.isdigit():
        epoch, rest = "0", version
    body, dash, revision = rest.rpartition("-")
    if not dash:
        # a missing revision is equal to revision 0
        body, revision = rest, "0"
    return int(epoch), _part(body), _part(revision or "0")


def _part(text: str) -> _Part:
    """Alternating non-digits and numbers; the last pair is empty, which is what makes `1~` sort before `1`."""
    return tuple((_letters(letters), int(digits or 0)) for letters, digits in re.findall(r"([^0-9]*)([0-9]*)", text))


def _letters(text: str) -> tuple[int, ...]:
    """`~` sorts before the end of the part (0), letters after it, anything else after letters."""
    return (*(-1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 256 for c in text), 0)


def matches(pin: str, version: str) -> bool:
    """Whether a package version satisfies a pin.

    pin: an upstream version such as `2.6.0`, or a whole Debian version such as `2.6.0+dfsg-7`.
    `2.6.0` is satisfied by 2.6.0 itself and by what packagers make of it (`2.6.0+dfsg`, `12.4.127~12.4.1`,
    `2.22.3-1`), never by 2.6.0.1 or 2.6.01.
    """
    if pin == version:
        return True
    part = upstream(version)
    return part == pin or (part.startswith(pin) and part[len(pin)] in "+~-")
