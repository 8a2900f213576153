"""The pyinfra connector for nodes: `@goldsmith/NAME`. pyinfra's own, with three things set right.

- TCP_NODELAY: paramiko leaves it unset, and every exec then waits for Nagle: 50 ms instead of 10
  (docs/measured.md).
- Host keys are checked strictly, against the site's known_hosts; pyinfra's default accepts new ones.
- Address, user and key come from the site's inventory, read for the hosts that a run touches.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyinfra.api import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.ssh import SSHConnector

from goldsmith.errors import GoldsmithError
from goldsmith.inventory.site import load_site
from goldsmith.model.node import Ssh
from goldsmith.probe.bundle import PYTHON

CONNECT_TIMEOUT = 15


class GoldsmithConnector(SSHConnector):
    """Host data: goldsmith_site, the inventory's folder."""

    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        yield name, {}, []

    def connect(self) -> None:
        try:
            ssh = load_site(Path(self.host.data.goldsmith_site)).node(self.host.name).ssh
        except GoldsmithError as error:
            raise ConnectError(str(error)) from None
        assert ssh is not None, "a node of an inventory has an address"
        self.data["ssh_hostname"] = ssh.address
        self.data["ssh_port"] = ssh.port
        self.data["ssh_user"] = ssh.user
        if ssh.key_file:
            if not Path(ssh.key_file).is_file():
                raise ConnectError(f"the private key {ssh.key_file} isn't there (ansible_ssh_private_key_file)")
            self.data["ssh_key"] = ssh.key_file
        if ssh.known_hosts:
            self.data["ssh_known_hosts_file"] = ssh.known_hosts
        self.data["ssh_strict_host_key_checking"] = "yes"
        if ssh.become:
            self.host.data._sudo = True
        try:
            super().connect()
        except ConnectError as error:
            raise ConnectError(said_plainly(str(error.args[0]), ssh)) from None
        transport = self.client.get_transport() if self.client else None
        if transport and isinstance(transport.sock, socket.socket):
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # every operation asks the probe; a node that can't run it is told once, here, and left out
        found, _output = self.run_shell_command(StringCommand("test", "-x", PYTHON[0]), _timeout=CONNECT_TIMEOUT)
        if not found:
            raise ConnectError(f"the node has no {PYTHON[0]}: apt-get update && apt-get install python3")


def said_plainly(message: str, ssh: Ssh) -> str:
    """paramiko's and pyinfra's words for why there is no connection, as the audit says it."""
    known = ssh.known_hosts or "~/.ssh/known_hosts"
    for words, plain in (
        ("Unable to connect", "can't be reached: is it switched on, and its sshd running?"),
        ("timed out", "can't be reached: no answer in time"),
        ("No host key", f"its host key isn't in {known}; check it on the node's console, then add it"),
        ("does not match", f"its host key isn't the one in {known}; find out why before you change anything"),
        ("No existing session", "it takes connections, but its sshd doesn't answer: is it hung?"),
        ("protocol banner", "it takes connections, but its sshd doesn't answer: is it hung?"),
        ("Authentication error", "it refuses our key (ansible_user, ansible_ssh_private_key_file)"),
    ):
        if words in message:
            return f"{plain} ({ssh.address} port {ssh.port})"
    return message
