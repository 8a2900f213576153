"""The lab's ssh: keys made here, so that every node's identity is known before it boots and none is ever
trusted on first use."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address
from pathlib import Path

import asyncssh

from goldsmith import atomic
from goldsmith.lab.settings import LabSettings

CLIENT = "id_ed25519"
HOST_KEY = "ssh_host_ed25519_key"


def make(settings: LabSettings) -> None:
    """See that the client key and every node's host key are there, and write known_hosts and config from
    them.

    What exists is kept: a node that runs keeps its identity.
    """
    settings.ssh.mkdir(parents=True, exist_ok=True)
    settings.ssh.chmod(0o700)
    _key_pair(settings.ssh / CLIENT, f"goldsmith-lab-{settings.name}")
    entries = []
    for node, address in settings.nodes.items():
        _key_pair(host_key(settings, node), node)
        entries.append((node, address, public(host_key(settings, node))))
    atomic.write(settings.ssh / "known_hosts", known_hosts(entries), mode=0o644)
    atomic.write(settings.ssh / "config", client_config(settings), mode=0o644)


def host_key(settings: LabSettings, node: str) -> Path:
    """The private host key of a node; the public one is beside it, with .pub."""
    return settings.ssh / "hosts" / node / HOST_KEY


def public(private: Path) -> str:
    """The public half: one line, with its end."""
    return private.with_name(private.name + ".pub").read_text()


def known_hosts(entries: Iterable[tuple[str, IPv4Address, str]]) -> str:
    """(node, address, public key) → the lines of a known_hosts file."""
    return "".join(
        f"{node},{address} {' '.join(key.split()[:2])}\n" for node, address, key in entries
    )  # fmt: skip


def client_config(settings: LabSettings) -> str:
    """For people: `ssh -F STATE/labs/NAME/ssh/config node01`."""
    hosts = "".join(f"Host {node}\n  HostName {address}\n" for node, address in settings.nodes.items())
    return (
        f"# Lab {settings.name}: ssh -F {settings.ssh / 'config'} NODE\n{hosts}"
        "Host *\n"
        "  User root\n"
        f'  IdentityFile "{settings.ssh / CLIENT}"\n'
        "  IdentitiesOnly yes\n"
        f'  UserKnownHostsFile "{settings.ssh / "known_hosts"}"\n'
        "  GlobalKnownHostsFile none\n"
        "  StrictHostKeyChecking yes\n"
    )


def _key_pair(private: Path, comment: str) -> None:
    if private.is_file() and private.with_name(private.name + ".pub").is_file():
        return
    key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
    # the private half last: it stands for the pair being whole
    atomic.write(private.with_name(private.name + ".pub"), key.export_public_key())
    atomic.write(private, key.export_private_key(), mode=0o600)
