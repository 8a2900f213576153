"""A plan: one node, its image's lock, its roles, and everything they promise about it.

Deploy, build and audit all start from here; so they can't disagree about what a node should be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from goldsmith.compare import Difference, package_of
from goldsmith.errors import GoldsmithError
from goldsmith.inventory.site import Site, image_node, image_of, image_roles, lock_of
from goldsmith.lock.locking import lock_fits
from goldsmith.model.desired import Desired, gather
from goldsmith.model.image import Image
from goldsmith.model.lock import Lock
from goldsmith.model.node import Node, Ssh
from goldsmith.probe.bundle import bundle
from goldsmith.role import Role


@dataclass(frozen=True)
class Plan:
    """site: what to name in a remedy, e.g. `inventories/lab`; None while an image is built. whole: it is all that the
    roles promise, and they do their own steps; otherwise it is the layer of packages (`packages_alone`).
    """

    node: Node
    lock: Lock
    roles: tuple[Role, ...]
    desired: Desired
    site: str | None = None
    whole: bool = True

    def want(self, parts: Iterable[str] | None = None, *, deep: bool = False, patience: float = 1.0) -> dict[str, Any]:
        """What a probe is asked to look at. parts: only these, None for all. patience: what its deadlines are
        multiplied by.

        Variables that a role marks no_log in its argument spec stay here.
        """
        desired = self.desired
        return {
            "target": self.node.target,
            "deep": deep,
            "patience": patience,
            "parts": sorted(parts) if parts is not None else None,
            "files": {path: file.sha256 for path, file in desired.files.items()},
            "secret_files": [path for path, file in desired.files.items() if file.secret],
            "units": list(desired.units),
            "sysctls": list(desired.sysctls),
            "modules": list(desired.modules),
            "pinned": {one.name: [one.version, one.source] for one in desired.packages.values() if one.held},
            "environments": {name: one.digest for name, one in desired.environments.items()},
            "package_files": sorted({path for one in desired.packages.values() for path in one.files}),
            "hash_always": sorted({path for one in desired.packages.values() if one.verify for path in one.files}),
            "variables": {role.name: self._told(role) for role in self.roles},
        }

    def script(self, parts: Iterable[str] | None = None, *, deep: bool = False, patience: float = 1.0) -> str:
        """The probe as one program for the node's Python, to be sent on stdin."""
        return bundle(self.roles, self.want(parts, deep=deep, patience=patience))

    def role_of(self, difference: Difference) -> str:
        """The role that promised what a difference is about; the first role where it is about a whole kind."""
        if difference.role:
            return difference.role
        kind, key = difference.kind, difference.key
        if kind in ("packages", "holds", "strays", "pins", "contents"):
            package = package_of(self.desired, difference)
            kind, key = "packages", package.name if package else key
        elif kind == "modules":
            key = key.split(" ")[0].replace("-", "_")
        elif kind == "environments":
            key = key.split(" ")[0]
        return self.desired.owner.get((kind, key), self.roles[0].name if self.roles else "goldsmith")

    def promised(self) -> Iterator[tuple[str, str]]:
        """(part of the probe, key) of everything that is compared with a promise."""
        desired = self.desired
        for kind in ("packages", "files", "units", "modules", "sysctls", "environments"):
            yield from ((kind, key) for key in getattr(desired, kind))
        yield from (("candidates", name) for name in desired.held())
        yield from (("stale_files", key) for key in ("stale", "pending"))
        yield from (("package_files", path) for one in desired.packages.values() for path in one.files)

    def _told(self, role: Role) -> dict[str, Any]:
        spec = role.argument_spec()
        return {name: value for name, value in public(spec, self.node.variables).items() if name in spec}


def public(spec: Mapping[str, Any], values: Any) -> Any:
    """Values without those that a spec marks no_log, at any depth."""
    if isinstance(values, list):
        return [public(spec, one) for one in values]
    if not isinstance(values, Mapping):
        return values
    return {
        name: public(spec.get(name, {}).get("options") or {}, value)
        for name, value in values.items()
        if not spec.get(name, {}).get("no_log")
    }


def plan_node(site: Site, name: str) -> Plan:
    """The plan of a node of a site."""
    node = site.node(name)
    lock = site.lock(node.image)
    return _plan(node, lock, site.roles(node), site.image(node.image), site.path)


def plan_image(project: Path, name: str) -> Plan:
    """The plan of the tree that becomes an image."""
    node = image_node(project, name)
    image = image_of(project, name)
    return _plan(node, lock_of(project, name), image_roles(project, image), image, None)


def packages_alone(plan: Plan) -> Plan:
    """The part of an image's plan that takes minutes and seldom changes: packages, environments, and the files and
    units that must be there before them. What is built by it is kept for the next build (goldsmith.image.layer).
    """
    whole = plan.desired
    kept = replace(
        whole,
        files={path: one for path, one in whole.files.items() if one.before_packages},
        units={name: one for name, one in whole.units.items() if one.before_packages},
        modules={}, sysctls={}, parameters={},
    )  # fmt: skip
    return replace(plan, desired=kept, whole=False)


def plan_machine(project: Path, image: str, name: str, ssh: Ssh) -> Plan:
    """The plan of a machine that runs an image as it was built, of no inventory. name: what to call it."""
    image_plan = plan_image(project, image)
    node = replace(image_plan.node, name=name, ssh=ssh, target="live")
    return _plan(node, image_plan.lock, list(image_plan.roles), image_of(project, image), None)


def _plan(node: Node, lock: Lock, roles: list[Role], image: Image, site: str | None) -> Plan:
    if not lock_fits(image, lock, roles):
        # a version that was edited and never locked would otherwise pass as OK, everywhere
        raise GoldsmithError(
            "image.yml, or a role's packages, changed since the image was locked",
            where=f"images/{image.name}/image.lock",
            hint=f"lock it again: goldsmith lock images/{image.name}",
        )
    desired = gather({role.name: role.desired(node, lock) for role in roles})
    return Plan(node, lock, tuple(roles), desired, site)
