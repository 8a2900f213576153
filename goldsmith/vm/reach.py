"""A running machine over ssh: with a key that was made for this start, and the host keys that its console showed."""

from __future__ import annotations

import re
import shlex
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from goldsmith import atomic, process
from goldsmith.errors import GoldsmithError
from goldsmith.model.node import Ssh
from goldsmith.process import Done
from goldsmith.vm import console
from goldsmith.vm.running import Running

# The credential that systemd (256 and later) makes root's authorized_keys of, where there is none.
CREDENTIAL = "ssh.authorized_keys.root"


def make_key(folder: Path) -> Path:
    """A private key in `folder`, its public half beside it. Raises GoldsmithError."""
    key = folder / "ssh-key"
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "goldsmith-boot", "-f", str(key)]
    process.run(argv, timeout=60, what="make an ssh key")
    return key


def public(key: Path) -> str:
    return key.with_name(f"{key.name}.pub").read_text()


def known_hosts(port: int, keys: Sequence[str]) -> str:
    """The lines of a known_hosts file for a forwarded port. keys: `TYPE BASE64` each."""
    return "".join(f"[127.0.0.1]:{port} {key}\n" for key in keys)


@dataclass(frozen=True)
class Login:
    """How a running machine is reached. host_keys: as its console showed them."""

    machine: Running
    key: Path
    known_hosts: Path
    host_keys: tuple[str, ...]
    user: str = "root"

    @property
    def ssh(self) -> Ssh:
        return Ssh("127.0.0.1", self.machine.port, self.user, str(self.key), str(self.known_hosts))

    def command(self) -> list[str]:
        """ssh and its options, for a person too; nothing of the user's configuration counts."""
        options = {
            "IdentitiesOnly": "yes", "IdentityFile": _quoted(self.key), "UserKnownHostsFile": _quoted(self.known_hosts),
            "GlobalKnownHostsFile": "none", "StrictHostKeyChecking": "yes", "BatchMode": "yes", "ConnectTimeout": "60",
            "LogLevel": "ERROR",
            # a guest that goes down may take its network away without a word: the connection would stay for ever
            "ServerAliveInterval": "20", "ServerAliveCountMax": "6",
        }  # fmt: skip
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "none", *words, "-p", str(self.machine.port), f"{self.user}@127.0.0.1"]

    def run(self, argv: Sequence[str], *, timeout: float = 60.0, check: bool = True, stdin: str | None = None) -> Done:
        """Run a program there. timeout: seconds of a real machine; a slower one is given more.

        Raises GoldsmithError, with the console's end where ssh itself failed, or the program (unless `check` is False).
        """
        what = f"{self.machine.machine.name}: {shlex.join(argv)}"
        patience = timeout * self.machine.accelerator.slowness
        done = process.run(
            [*self.command(), "--", shlex.join(argv)], timeout=patience, what=what, check=False, stdin=stdin
        )
        if done.code == 255:
            raise self.machine.error(f"ssh failed at `{shlex.join(argv)}`: {done.tail or 'it said nothing'}")
        if check and done.code != 0:
            raise GoldsmithError(f"failed with exit code {done.code}:\n  {done.tail}", where=what)
        return done

    def reboot(self, timeout: float | None = None, say: Callable[[str], None] = lambda _: None) -> None:
        """Reboot and wait until it is there again, as another boot of the same machine. Raises GoldsmithError."""
        before = self.machine.resets
        deadline = time.monotonic() + (self.machine.accelerator.boot if timeout is None else timeout)
        # later, when our connection has been closed: it may outlive the guest's network, and nobody would end it
        self.run(["systemd-run", "--quiet", "--on-active=2", "systemctl", "reboot"])
        # the sshd of the boot that ends still greets, and then says nothing any more
        while self.machine.resets == before:
            _wait(self.machine, deadline, "it doesn't reboot", say)
        greeting(self.machine, deadline, say)


def login(
    machine: Running, folder: Path, key: Path, timeout: float | None = None, say: Callable[[str], None] = lambda _: None
) -> Login:
    """Wait until a machine that boots has shown its host keys and its sshd greets.

    folder: where its known_hosts goes. key: what CREDENTIAL was made of. timeout: seconds since the machine's start, by
    default the accelerator's. say: progress, the console's last line. Raises GoldsmithError with the console's end.
    """
    deadline = machine.started + (machine.accelerator.boot if timeout is None else timeout)
    while not (keys := console.host_keys(machine.places.console)):
        _wait(machine, deadline, "it showed no ssh host keys on its console", say)
    greeting(machine, deadline, say)
    path = folder / "known_hosts"
    atomic.write(path, known_hosts(machine.port, keys))
    return Login(machine, key, path, tuple(keys))


def greeting(machine: Running, deadline: float, say: Callable[[str], None]) -> None:
    """Wait until sshd greets. deadline: of time.monotonic(). Raises GoldsmithError with the console's end."""
    while True:
        # QEMU itself takes the connection, and ends it while the guest has nobody at its port
        with suppress(OSError), socket.create_connection(("127.0.0.1", machine.port), timeout=10) as connection:
            connection.settimeout(30)
            if re.match(rb"SSH-\d", connection.recv(64)):
                return
        _wait(machine, deadline, "its sshd doesn't answer", say)


def _wait(machine: Running, deadline: float, what: str, say: Callable[[str], None]) -> None:
    machine.require()
    if time.monotonic() > deadline:
        seconds = time.monotonic() - machine.started
        raise machine.error(
            f"{what} within {seconds:.0f} s, under {machine.accelerator.name}",
            hint="a loaded machine takes longer: --timeout SECONDS",
        )
    say(console.last_line(machine.places.console))
    time.sleep(0.5)


def _quoted(path: Path) -> str:
    """A path in ssh's -o, where blanks part several."""
    return f'"{path}"'
