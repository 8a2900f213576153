"""Commands of the other operations."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyinfra.api import FileUploadCommand, StringCommand
from pyinfra.api.command import PyinfraCommand

from goldsmith import File, Unit
from goldsmith.converge.operations import files, kernel, systemd


def text(file: File, *, keep: bool) -> list[str]:
    return [
        command.get_raw_value() if isinstance(command, StringCommand) else f"upload {command.dest}"
        for command in files.write(file, "T", keep=keep)
        if isinstance(command, (StringCommand, FileUploadCommand))
    ]


def test_a_file_is_private_until_it_is_whole() -> None:
    lines = text(File("/etc/x.conf", "secret\n", mode=0o600), keep=False)
    assert lines[0] == "install -D -m 0600 /dev/null /etc/x.conf.goldsmith-new"
    assert lines[1] == "upload /etc/x.conf.goldsmith-new"
    assert lines[-1].endswith("chmod 0600 /etc/x.conf.goldsmith-new && mv -fT /etc/x.conf.goldsmith-new /etc/x.conf")
    assert not any("secret" in line for line in lines)


def test_what_was_there_is_kept() -> None:
    lines = text(File("/etc/x.conf", ""), keep=True)
    assert "/var/backups/goldsmith/etc/x.conf.T" in lines[0]


def test_names_are_quoted() -> None:
    lines = text(File("/etc/a b$(id).conf", ""), keep=True)
    assert all("'/etc/a b$(id).conf" in line for line in lines if not line.startswith("upload"))


def test_reloads_once_and_only_where_something_runs() -> None:
    paths = ["/etc/systemd/system/a.service", "/etc/systemd/system/b.service"]
    assert [one.command for one in files.reloads(paths, "live")] == ["systemctl daemon-reload"]
    assert files.reloads(paths, "image") == []


def lines_of(commands: Iterator[PyinfraCommand]) -> list[str]:
    return [one.get_raw_value() for one in commands if isinstance(one, StringCommand)]


def test_a_reload_leaves_a_mark_until_it_has_succeeded() -> None:
    due = files.reloads(["/etc/systemd/system/a.service", "/etc/udev/rules.d/a.rules"], "live")
    assert lines_of(files.mark(due, "live")) == [
        "mkdir -p /var/lib/goldsmith/pending && : > /var/lib/goldsmith/pending/daemon-reload"
        " && : > /var/lib/goldsmith/pending/udev"
    ]
    assert lines_of(files.reload(due)) == [
        "systemctl daemon-reload && rm -f /var/lib/goldsmith/pending/daemon-reload",
        "udevadm control --reload && rm -f /var/lib/goldsmith/pending/udev",
    ]
    assert lines_of(files.mark([], "live")) == []
    names = [one.name for one in files.RELOADS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("code", [0, 1])
def test_a_failed_reload_keeps_its_mark(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines as a shell runs them, with a reload that is an `if` as most of ours are."""
    monkeypatch.setattr(files, "PENDING", str(tmp_path / "pending"))
    due = [files.Reload("grub", "*", ("live",), f"if true; then (exit {code}); fi")]
    for line in [*lines_of(files.mark(due, "live")), *lines_of(files.reload(due))]:
        subprocess.run(["sh", "-c", line], check=False, timeout=10)
    assert [one.name for one in (tmp_path / "pending").iterdir()] == ([] if code == 0 else ["grub"])


def test_what_no_role_promises_goes_with_a_copy_kept_and_the_reloads_after() -> None:
    stale = ["/etc/sysctl.d/90-goldsmith-old.conf", "/etc/systemd/system/a b.service.d/90-goldsmith.conf"]
    lines = lines_of(files.clear(stale, [], "T", "live"))
    assert lines[0].endswith("&& : > /var/lib/goldsmith/pending/daemon-reload")
    assert "cp -a -- /etc/sysctl.d/90-goldsmith-old.conf /var/backups/goldsmith/etc/sysctl.d/" in lines[1]
    assert lines[2] == "rm -f -- /etc/sysctl.d/90-goldsmith-old.conf"
    assert lines[4] == "rm -f -- '/etc/systemd/system/a b.service.d/90-goldsmith.conf'"
    assert lines[5] == "systemctl daemon-reload && rm -f /var/lib/goldsmith/pending/daemon-reload"
    assert lines_of(files.clear(stale, [], "T", "image")) == [lines[2], lines[4]]


def test_a_reload_that_is_still_due_is_made_up_for() -> None:
    lines = lines_of(files.clear([], ["grub", "unheard-of"], "T", "live"))
    assert lines == [
        "if command -v update-grub >/dev/null; then update-grub; fi && rm -f /var/lib/goldsmith/pending/grub",
        "rm -f -- /var/lib/goldsmith/pending/unheard-of",
    ]
    assert lines_of(files.clear([], [], "T", "live")) == []


def test_units() -> None:
    masked = Unit("apt-daily.timer", "masked")
    assert systemd.commands(masked, "static", "image") == ["systemctl --root=/ mask apt-daily.timer"]
    stop, mask, forget = systemd.commands(masked, "static", "live")
    assert stop.startswith("systemctl stop apt-daily.timer") and mask == "systemctl mask apt-daily.timer"
    assert forget.startswith("systemctl reset-failed")
    enabled = systemd.commands(Unit("chrony.service", "enabled"), "masked", "live")
    assert enabled[0] == "systemctl unmask chrony.service" and enabled[-1] == "systemctl start chrony.service"
    assert systemd.commands(Unit("c.service", "enabled", running=False), "disabled", "live") == [
        "systemctl enable c.service"
    ]


def test_sysctl_paths() -> None:
    assert kernel.sysctl_command("net.ipv4.conf.eth0/100.rp_filter", "2") == (
        "printf '%s\\n' 2 > /proc/sys/net/ipv4/conf/eth0.100/rp_filter"
    )
