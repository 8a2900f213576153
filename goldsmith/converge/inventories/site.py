"""The pyinfra inventory of a site that has no NAME.py beside it: the folder is named by GOLDSMITH_SITE."""

import os
from pathlib import Path

from goldsmith.inventory.pyinfra import pyinfra_groups

globals().update(pyinfra_groups(Path(os.environ["GOLDSMITH_SITE"])))
