"""Host keys and last words, read from a serial console."""

from __future__ import annotations

import base64
from pathlib import Path

from goldsmith.vm.console import BEGIN, END, failed_units, host_keys, last_line, tail, text


def key(kind: str = "ssh-ed25519", fill: int = 7) -> str:
    fields = (kind.encode(), bytes([fill]) * 32)
    return f"{kind} {base64.b64encode(b''.join(len(one).to_bytes(4, 'big') + one for one in fields)).decode()}"


def console(tmp_path: Path, *lines: str) -> Path:
    log = tmp_path / "console.log"
    log.write_bytes("\r\n".join(lines).encode())
    return log


def test_keys_between_the_two_lines(tmp_path: Path) -> None:
    other = key("ecdsa-sha2-nistp256")
    log = console(tmp_path, "boot", key(fill=1), BEGIN, f"{other} root@localhost", f"{key()} root@x", END, key(fill=2))
    assert host_keys(log) == [other, key()]


def test_not_before_they_are_whole(tmp_path: Path) -> None:
    assert host_keys(tmp_path / "none.log") == []
    assert host_keys(console(tmp_path, BEGIN, key())) == []
    assert host_keys(console(tmp_path, key(), END)) == []


def test_the_kernel_speaks_in_between(tmp_path: Path) -> None:
    torn = key(fill=3)
    lines = [
        BEGIN,
        "[   66.7] input: Power Button",
        torn[:40] + "[   67.1] cryptd: max_cpu_qlen",
        torn[40:],
        key(),
        END,
    ]
    assert host_keys(console(tmp_path, *lines)) == [key()]


def test_a_cut_key_is_no_key(tmp_path: Path) -> None:
    cut = key()[:-8]
    assert host_keys(console(tmp_path, BEGIN, cut, "ssh-ed25519 AAAA", f"ssh-rsa {key().split()[1]}", END)) == []


def test_the_last_boot_counts(tmp_path: Path) -> None:
    log = console(tmp_path, BEGIN, key(fill=1), END, "again", BEGIN, key(fill=2), END, BEGIN, "half")
    assert host_keys(log) == [key(fill=2)]


def test_nothing_that_a_terminal_obeys(tmp_path: Path) -> None:
    log = console(tmp_path, "\x1b[0;32m  OK  \x1b[0m Started \x1b]0;title\x07x.\x1b[!p\x1b[?7l", "\x00\x07", "")
    assert text(log).splitlines()[0] == "  OK   Started x."
    assert last_line(log) == "  OK   Started x."
    assert tail(tmp_path / "none.log") == "(empty)"


def test_units_that_failed_by_name(tmp_path: Path) -> None:
    log = console(
        tmp_path,
        "[\x1b[0;1;31mFAILED\x1b[0m] Failed to start \x1b[0;1;39mx.service\x1b[0m - An X.",
        "See 'systemctl status x.service' for details.",
        "[\x1b[0;1;38:5:185mDEPEND\x1b[0m] Dependency failed for \x1b[0;1;39mdata.mount\x1b[0m - /data.",
        "[\x1b[0;1;31mFAILED\x1b[0m] Failed to start \x1b[0;1;39mx.service\x1b[0m - An X.",
        "[\x1b[0;32m  OK  \x1b[0m] Started \x1b[0;1;39my.service\x1b[0m - Failed to start is its name.",
        "x.service: Failed to start z.service",
    )
    assert failed_units(log) == ["x.service", "data.mount"]
    assert failed_units(tmp_path / "none.log") == []
