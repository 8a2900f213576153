"""Bringing a node to what its roles promise: the steps that deploy.py is made of.

Import this only in pyinfra's deploy code; goldsmith.converge.run starts pyinfra.
"""

from goldsmith.converge.host import this_plan
from goldsmith.converge.steps import before_packages, environments, packages, read_back, role

__all__ = ["before_packages", "environments", "packages", "read_back", "role", "this_plan"]
