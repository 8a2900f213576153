"""Where things are: the project (roles/, images/, inventories/) and the state that goldsmith makes (.goldsmith/).

The project is the nearest folder, from the one named upwards, that holds roles/ and images/. State can be
put elsewhere with GOLDSMITH_STATE, for instance when the checkout lies on a network or overlay file system.
"""

from __future__ import annotations

import os
from pathlib import Path

from goldsmith.errors import GoldsmithError


def find_project(start: Path | None = None) -> Path:
    """The project that `start` lies in, or else the working directory: an image may be tried outside of any."""
    here = (start or Path.cwd()).resolve()
    for place in (here, Path.cwd().resolve()):
        for folder in (place, *place.parents):
            if (folder / "roles").is_dir() and (folder / "images").is_dir():
                return folder
    raise GoldsmithError(
        "no goldsmith project here: no folder from here up holds roles/ and images/",
        where=str(here),
        hint="run this inside a checkout of goldsmith",
    )


def state_dir(project: Path) -> Path:
    """Where pool, builds and labs of a project live. Not created here."""
    configured = os.environ.get("GOLDSMITH_STATE")
    return Path(configured).resolve() if configured else project / ".goldsmith"
