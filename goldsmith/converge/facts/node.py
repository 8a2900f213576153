"""The one fact: the probe, run on the node. What an audit sees is what a deploy starts from."""

from __future__ import annotations

from pyinfra.api import FactBase

from goldsmith.probe.bundle import PYTHON


class NodeProbe(FactBase[str]):
    """The probe's output. The script comes on stdin: `host.get_fact(NodeProbe, _stdin=script)`."""

    def command(self) -> str:
        return " ".join(PYTHON)

    def process(self, output: list[str]) -> str:
        return "\n".join(output)
