"""The probe on this machine: `goldsmith probe --local`, and from an image's own prolog."""

from __future__ import annotations

from goldsmith.probe.bundle import PYTHON
from goldsmith.process import run


def probe_local(script: str, timeout: float = 60) -> str:
    """What the probe script prints here."""
    return run(PYTHON, timeout=timeout, what="probe this machine", stdin=script).out
