"""A deb of python3-torch with another version: the pool's, its control file changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from .conftest import PROJECT


@cache
def other_torch(version: str) -> bytes:
    """The repacked deb. Only its version is another; that is all an audit needs to see."""
    lock = json.loads((PROJECT / "images/lab/image.lock").read_text())
    pool = Path(os.environ.get("GOLDSMITH_STATE") or PROJECT / ".goldsmith") / "pool"
    deb = pool / lock["packages"]["python3-torch"]["filename"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True, timeout=120)
        control = tree / "DEBIAN/control"
        control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", control.read_text()))
        out = Path(folder) / "torch.deb"
        build = ["dpkg-deb", "-Zgzip", "-z1", "--build", tree, out]
        subprocess.run(build, check=True, timeout=120, capture_output=True)
        return out.read_bytes()
