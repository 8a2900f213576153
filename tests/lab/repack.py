"""A deb of python3-torch with another version: the pool's, its control file changed."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from goldsmith.lock import Pool
from goldsmith.model.lock import read_lock
from goldsmith.project import state_dir

from .conftest import PROJECT


@cache
def other_torch(version: str) -> bytes:
    """The repacked deb. Only its version is another; that is all an audit needs to see."""
    deb = Pool(state_dir(PROJECT)).path(read_lock(PROJECT / "images/lab").package("python3-torch"))
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True, timeout=120)
        control = tree / "DEBIAN/control"
        control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", control.read_text()))
        out = Path(folder) / "torch.deb"
        build = ["dpkg-deb", "-Zgzip", "-z1", "--build", tree, out]
        subprocess.run(build, check=True, timeout=120, capture_output=True)
        return out.read_bytes()
