"""Commands of the other operations."""

from pyinfra.api import FileUploadCommand, StringCommand

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
    assert files.reloads(paths, "live") == ["systemctl daemon-reload"]
    assert files.reloads(paths, "image") == []


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
