"""goldsmith: declare a GPU cluster's nodes once; deploy, bake and audit follow.

This is the small public face that roles and validate/ use; they import nothing else of the engine.
"""

from goldsmith.errors import GoldsmithError
from goldsmith.model.desired import MANAGED
from goldsmith.model.finding import Finding, Severity
from goldsmith.model.image import Image
from goldsmith.model.lock import FAMILIES, POOL_SOURCES, Lock, upstream
from goldsmith.model.node import Node
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
from goldsmith.model.rule import Hit, Rule
from goldsmith.template import template

__all__ = [
    "FAMILIES",
    "MANAGED",
    "POOL_SOURCES",
    "File",
    "Finding",
    "GoldsmithError",
    "Hit",
    "Image",
    "KernelModule",
    "KernelParameter",
    "Lock",
    "Node",
    "Package",
    "PythonEnvironment",
    "Resource",
    "Rule",
    "Severity",
    "Sysctl",
    "Unit",
    "template",
    "upstream",
]
