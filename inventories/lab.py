"""The pyinfra face of inventories/lab: `pyinfra inventories/lab.py deploy.py`."""

from pathlib import Path

from goldsmith.inventory.pyinfra import pyinfra_groups

globals().update(pyinfra_groups(Path(__file__).with_suffix("")))
