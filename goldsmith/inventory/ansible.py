"""Everything goldsmith takes from ansible-core's insides, in one module.

ansible-core promises none of these names; the version is pinned exactly and tests/contract/test_ansible.py
compares what we read with `ansible-inventory --list` (docs/architecture.md).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldsmith.errors import GoldsmithError

# What ansible itself puts among a host's variables; none of it is the user's.
_MAGIC = frozenset({
    "groups", "ansible_facts", "ansible_version", "ansible_config_file", "ansible_playbook_python",
    "playbook_dir", "inventory_file", "group_names", "inventory_hostname_short", "hostvars", "omit",
})  # fmt: skip


@dataclass(frozen=True)
class Host:
    """One host as ansible sees it. variables: the user's, templated, as plain Python values.
    origins: variable → file:line where it was set, as far as ansible remembers."""

    name: str
    groups: tuple[str, ...]
    variables: Mapping[str, Any]
    origins: Mapping[str, str]


class Inventory:
    """An inventory folder (hosts.yml, group_vars/, host_vars/, vault). Variables are templated per host, when
    asked for: templating 10,000 hosts takes a minute (docs/measured.md)."""

    def __init__(self, folder: Path, vault_password_file: Path | None = None) -> None:
        # Ansible warns and goes on with the part of a site that it can read, or with the last of two `nodes:`; an
        # audit of part of a site isn't one. It reads these when it is imported.
        os.environ.setdefault("ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED", "true")
        os.environ.setdefault("ANSIBLE_DUPLICATE_YAML_DICT_KEY", "error")
        # importing ansible takes a second; commands that need no inventory shouldn't pay it
        with _plain_ports():
            from ansible.errors import AnsibleError
            from ansible.inventory.manager import InventoryManager
            from ansible.parsing.dataloader import DataLoader
            from ansible.vars.manager import VariableManager

        self.folder = folder
        self._error = AnsibleError
        self._loader = DataLoader()
        # Ansible does this for playbooks and not for us: relative lookups are from the inventory
        self._loader.set_basedir(str(folder))
        if vault_password_file:
            self._loader.set_vault_secrets([("default", _vault_secret(vault_password_file))])
        try:
            self._manager = InventoryManager(loader=self._loader, sources=[str(folder)])
        except AnsibleError as error:
            raise self._explain(error) from None
        self._variables = VariableManager(loader=self._loader, inventory=self._manager)
        if not self._manager.hosts:
            raise GoldsmithError(
                "the inventory has no hosts",
                where=str(folder),
                hint="is hosts.yml there, and in Ansible's layout? `ansible-inventory -i FOLDER --list` says",
            )

    @property
    def names(self) -> list[str]:
        return [host.name for host in self._manager.get_hosts()]

    def groups(self) -> dict[str, list[str]]:
        """group → host names, children's hosts counted in; without `all` and `ungrouped`."""
        groups: dict[str, list[str]] = self._manager.get_groups_dict()
        return {name: list(hosts) for name, hosts in groups.items() if name not in ("all", "ungrouped") and hosts}

    def host(self, name: str) -> Host:
        """The host, its variables templated. Raises GoldsmithError with file and line."""
        host = self._manager.get_host(name)
        if host is None:
            raise GoldsmithError(f"no host {name} in this inventory", where=str(self.folder))
        try:
            raw = self._variables.get_vars(host=host, include_hostvars=False)
            values = self._template(name, raw)
        except self._error as error:
            raise self._explain(error, node=name) from None
        groups = tuple(sorted(group.name for group in host.get_groups() if group.name != "all"))
        return Host(name, groups, values, dict(_origins(raw)))

    def _template(self, name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
        from ansible.template import Templar

        templar = Templar(loader=self._loader, variables={**raw, "inventory_hostname": name})
        mine = {key: value for key, value in raw.items() if key not in _MAGIC}
        return {str(key): plain(templar.template(value)) for key, value in mine.items()}

    def _explain(self, error: Exception, node: str = "") -> GoldsmithError:
        message = str(getattr(error, "message", error)).strip()
        origin = getattr(getattr(error, "obj", None), "_origin", None) or _origin(getattr(error, "obj", None))
        where = str(origin) if origin else str(self.folder) + (f", node {node}" if node else "")
        hint = ""
        if "vault" in message.lower() or "decrypt" in message.lower():
            hint = (
                "give the vault's password: GOLDSMITH_VAULT_PASSWORD_FILE=FILE (ANSIBLE_VAULT_PASSWORD_FILE works too)"
            )
        cause = error.__cause__
        if cause and str(cause) not in message:
            message += f": {cause}"
        return GoldsmithError(message, where=where, hint=hint)


@contextmanager
def _plain_ports() -> Iterator[None]:
    """While ansible is imported, getaddrinfo takes ports that are tagged ints.

    ansible tries that with a call, and patches socket if it fails; inside pyinfra, where gevent runs the call in a
    thread, the failure is printed as a traceback, twice. Our values are plain, so the patch isn't needed.
    """
    real = socket.getaddrinfo

    def tolerant(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        return real(host, int(port) if isinstance(port, int) else port, *args, **options)

    socket.getaddrinfo = tolerant
    try:
        yield
    finally:
        if socket.getaddrinfo is tolerant:
            socket.getaddrinfo = real


def _vault_secret(path: Path) -> Any:
    from ansible.parsing.vault import VaultSecret

    try:
        password = path.read_bytes().strip()
    except OSError as error:
        raise GoldsmithError(f"the vault's password can't be read: {error.strerror}", where=str(path)) from None
    if not password:
        raise GoldsmithError("the vault's password file is empty", where=str(path))
    return VaultSecret(password)


def _origin(value: Any) -> str | None:
    """file:line of a tagged value, without the column."""
    from ansible._internal._datatag._tags import Origin

    tag = Origin.get_tag(value) if value is not None else None
    if tag is None or not tag.path:
        return None
    return f"{tag.path}:{tag.line_num}" if tag.line_num else str(tag.path)


def _origins(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    # the value first: where host_vars overrides group_vars, the key is still the first file's. Booleans and None
    # can't be tagged, so their key has to do
    for key, value in raw.items():
        if found := _origin(value) or _origin(key):
            yield str(key), found


def plain(value: Any) -> Any:
    """Ansible's tagged values as ordinary ones: pyinfra checks types, and yaml and json are surprised."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return str(value)


def validate(spec: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Check a role's variables against its argument spec, as Ansible would before running the role.

    Takes the options of meta/argument_specs.yml. Returns the values, coerced and with defaults, and what is
    wrong, one sentence each, in Ansible's words.
    """
    with _plain_ports():
        from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

    options = {key: _as_module_option(value) for key, value in spec.items()}
    result = ArgumentSpecValidator(options).validate(dict(values))
    return {str(k): plain(v) for k, v in result.validated_parameters.items()}, list(result.error_messages)


def _as_module_option(option: Mapping[str, Any]) -> dict[str, Any]:
    """An option of argument_specs.yml without what only documents it."""
    kept = {key: value for key, value in option.items() if key not in ("description", "version_added")}
    if isinstance(kept.get("options"), Mapping):
        kept["options"] = {key: _as_module_option(value) for key, value in kept["options"].items()}
    return kept
