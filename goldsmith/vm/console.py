"""A machine's serial console, as QEMU writes it to a file: what it said last, what failed, the host keys it showed.

The file is ours and the guest's alone, no network is in between: a host key that stands there is the machine's.
"""

from __future__ import annotations

import base64
import binascii
import re
from contextlib import suppress
from pathlib import Path

# cloud-init's words, and so ours (roles/base)
BEGIN = "-----BEGIN SSH HOST KEY KEYS-----"
END = "-----END SSH HOST KEY KEYS-----"
_ESCAPES = re.compile(r"\x1b\[[0-9;:?=!]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>78cM]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# systemd's words; on a console of 80 columns it cuts what is too long, with an ellipsis
_FAILED = re.compile(
    r"^\[(?:FAILED|DEPEND)\] (?:Failed to (?:start|mount|listen on|activate swap)|Dependency failed for) (\S+)"
)
_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) (AAAA[A-Za-z0-9+/]+={0,2})(?:\s|$)")


def text(log: Path) -> str:
    """The console's whole text, without what a terminal would act on; empty if there is none yet."""
    content = ""
    with suppress(OSError):
        content = log.read_bytes().decode(errors="replace")
    return _CONTROL.sub("", _ESCAPES.sub("", content.replace("\r", "\n")))


def tail(log: Path, lines: int = 15) -> str:
    """The last lines, for an error."""
    return "\n  ".join([line for line in text(log).splitlines() if line.strip()][-lines:]) or "(empty)"


def last_line(log: Path) -> str:
    """The last line that says something, for progress."""
    return tail(log, 1)


def failed_units(log: Path) -> list[str]:
    """The units that systemd said it couldn't start, in their order, as far as the console shows their names."""
    found = (_FAILED.match(line.strip()) for line in text(log).splitlines())
    return list(dict.fromkeys(one[1].rstrip(".") for one in found if one))


def host_keys(log: Path) -> list[str]:
    """The host keys that the machine showed last, `TYPE BASE64` each; none while it hasn't shown them whole.

    Other lines may stand in between, since the kernel and systemd write to the same console; a key that was torn by
    one is left out.
    """
    shown = text(log)
    end = shown.rfind(END)
    begin = shown.rfind(BEGIN, 0, max(end, 0))
    if end < 0 or begin < 0:
        return []
    found = (_KEY.search(line) for line in shown[begin:end].splitlines())
    return [f"{one[1]} {one[2]}" for one in found if one and _whole(one[1], one[2])]


def _whole(kind: str, encoded: str) -> bool:
    """The key's bytes are a list of length-prefixed strings, of which the first is the type (RFC 4253, 6.6)."""
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        return False
    fields = []
    while len(data) >= 4:
        length = int.from_bytes(data[:4], "big")
        if length > len(data) - 4:
            return False
        fields.append(data[4 : 4 + length])
        data = data[4 + length :]
    return not data and len(fields) >= 2 and fields[0] == kind.encode()
