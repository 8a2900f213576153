"""Desired: everything a node's roles promise, gathered, checked for contradictions, and completed.

Modules, sysctls and the kernel command line are kept in files; those files are derived here, so that they are
deployed, baked and audited as any other file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256

from goldsmith.errors import GoldsmithError
from goldsmith.model.resource import (
    File,
    KernelModule,
    KernelParameter,
    Package,
    PythonEnvironment,
    Resource,
    Sysctl,
    Unit,
)

MANAGED = (
    "# Managed by goldsmith, role {role}: edits are found by `goldsmith audit` and undone by `goldsmith deploy`.\n"
)


@dataclass
class Desired:
    """Each dictionary is by the resource's own key. `owner` says which role promised (kind, key)."""

    packages: dict[str, Package] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)
    units: dict[str, Unit] = field(default_factory=dict)
    modules: dict[str, KernelModule] = field(default_factory=dict)
    sysctls: dict[str, Sysctl] = field(default_factory=dict)
    parameters: dict[str, KernelParameter] = field(default_factory=dict)
    environments: dict[str, PythonEnvironment] = field(default_factory=dict)
    owner: dict[tuple[str, str], str] = field(default_factory=dict)

    def held(self) -> list[str]:
        return [package.name for package in self.packages.values() if package.held]

    def digest(self) -> str:
        """Changes when anything that is promised changes."""
        data = {
            "packages": {name: [one.version, one.held] for name, one in self.packages.items()},
            "files": {path: [one.sha256, one.mode, one.owner, one.group] for path, one in self.files.items()},
            "units": {name: asdict(one) for name, one in self.units.items()},
            "modules": {name: [one.state, dict(one.options)] for name, one in self.modules.items()},
            "sysctls": {key: one.value for key, one in self.sysctls.items()},
            "parameters": sorted(self.parameters),
            "environments": {name: one.digest for name, one in self.environments.items()},
        }
        return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def gather(promises: Mapping[str, Iterable[Resource]]) -> Desired:
    """role → its resources, in the roles' order, made one Desired.

    Two roles may promise the same package (the later one owns it; a hold by either counts); anything else that
    is promised twice, differently, is an error that names both roles.
    """
    desired = Desired()
    for role, resources in promises.items():
        own = list(resources)
        for resource in [*own, *_derived_files(role, own)]:
            _add(desired, role, resource)
    return desired


def _key(resource: Resource) -> tuple[str, str]:
    match resource:
        case Package(name=key):
            return "packages", key
        case File(path=key):
            return "files", key
        case Unit(name=key):
            return "units", key
        case KernelModule(name=key):
            return "modules", key.replace("-", "_")
        case Sysctl(key=key):
            return "sysctls", key
        case KernelParameter(text=key):
            return "parameters", key
        case PythonEnvironment(name=key):
            return "environments", key


def _add(desired: Desired, role: str, resource: Resource) -> None:
    kind, key = _key(resource)
    known = getattr(desired, kind).get(key)
    if isinstance(resource, Package) and isinstance(known, Package):
        if known.version != resource.version:
            raise _contradiction(kind, key, desired.owner[kind, key], role)
        resource = replace(
            resource,
            held=resource.held or known.held,
            verify=resource.verify or known.verify,
            source=resource.source or known.source,
            files={**known.files, **resource.files},
        )
    elif known is not None and known != resource:
        raise _contradiction(kind, key, desired.owner[kind, key], role)
    getattr(desired, kind)[key] = resource
    desired.owner[kind, key] = role


def _contradiction(kind: str, key: str, first: str, second: str) -> GoldsmithError:
    return GoldsmithError(
        f"roles {first} and {second} promise different things about {key}",
        where=f"roles/{first}/desired.py and roles/{second}/desired.py, {kind}",
        hint="let one of them promise it",
    )


def _derived_files(role: str, resources: list[Resource]) -> Iterator[File]:
    """The files that modules, sysctls and kernel parameters of a role live in.

    /etc/sysctl.conf is never used: systemd 259 no longer reads it (kubernetes-sigs/image-builder, 97fbb7752).
    """
    header = MANAGED.format(role=role)
    modules = [one for one in resources if isinstance(one, KernelModule)]
    sysctls = [one for one in resources if isinstance(one, Sysctl)]
    parameters = [one for one in resources if isinstance(one, KernelParameter)]
    if loaded := [one.name for one in modules if one.state == "loaded"]:
        text = header + "".join(f"{name}\n" for name in loaded)
        yield File(f"/etc/modules-load.d/90-goldsmith-{role}.conf", text)
    lines = [f"options {one.name} {key}={value}\n" for one in modules for key, value in one.options.items()]
    # `install … /bin/false` too: a blacklist alone stops the alias, not a module that asks for it by name
    for one in modules:
        if one.state == "blacklisted":
            lines += [f"blacklist {one.name}\n", f"install {one.name} /bin/false\n"]
    if lines:
        path = f"/etc/modprobe.d/90-goldsmith-{role}.conf"
        yield File(path, header + "".join(lines), before_packages=True)
    if sysctls:
        text = header + "".join(f"{one.key} = {one.value}\n" for one in sysctls)
        yield File(f"/etc/sysctl.d/90-goldsmith-{role}.conf", text)
    if parameters:
        words = " ".join(one.text for one in parameters)
        text = f'{header}GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {words}"\n'
        # a file a role: two roles may both have kernel parameters, and each is added to what is there
        yield File(f"/etc/default/grub.d/90-goldsmith-{role}.cfg", text, before_packages=True)
