"""The driver's packages as one held set, nouveau kept away, and persistence where there is a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from goldsmith import MANAGED, File, GoldsmithError, KernelModule, Lock, Node, Resource, Unit, template

TEMPLATES = Path(__file__).parent / "templates"
# each at the driver's full version (GoogleCloudPlatform/cluster-toolkit#4657: imex was forgotten)
FAMILIES = ("driver", "fabricmanager", "imex", "nvlsm")
PERSISTENCED = "nvidia-persistenced.service"


def desired(node: Node, lock: Lock) -> Iterator[Resource]:
    # the whole family: a hold that covered one package of it let the others move (lyulyul/shine-cluster#30,
    # GoogleCloudPlatform/cluster-toolkit#4458)
    for name in FAMILIES:
        yield from lock.family(name)
    header = MANAGED.format(role="nvidia_driver")
    yield KernelModule("nouveau", "blacklisted")
    options = node["nvidia_driver_module_options"]
    yield File("/etc/modprobe.d/91-goldsmith-nvidia-options.conf", header + _options(options), before_packages=True)
    if any(name.startswith(("nvidia-persistenced", "nvidia-compute-utils-")) for name in lock.packages):
        text = template(TEMPLATES / "persistenced.conf.j2", header=header)
        # before the packages: the maintainer script starts the unit
        yield File(f"/etc/systemd/system/{PERSISTENCED}.d/90-goldsmith.conf", text, before_packages=True)
        yield Unit(PERSISTENCED, "enabled")


def _options(options: dict[str, object]) -> str:
    """Debian's module is called nvidia-current and loaded through an alias: the options have to name both."""
    words = []
    for key, value in options.items():
        if not re.fullmatch(r"[A-Za-z0-9_]+", str(key)) or re.search(r"[\s#\\]", str(value)):
            raise GoldsmithError(
                f"nvidia_driver_module_options: {key}={value} isn't a module option", hint="NAME: VALUE, no blanks"
            )
        words.append(f"{key}={int(value) if isinstance(value, bool) else value}")
    if not words:
        return "# no options\n"
    return "".join(f"options {module} {' '.join(words)}\n" for module in ("nvidia", "nvidia-current"))
