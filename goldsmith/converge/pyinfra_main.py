"""pyinfra's own command line, from this environment, leaving what it did in the file GOLDSMITH_RESULT names.

`pyinfra --json` prints nothing when every host failed, and never says why one did; so the same tables are taken
from its state at the end, with what it logged about each host. Private names: tests/contract/test_pyinfra.py.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from typing import Any

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_HOST = re.compile(r"^\s*\[(?P<host>[^\]]+)\]\s*(?P<text>.*)$", re.DOTALL)
# pyinfra's own status words; what else it says about a host is news
_ROUTINE = re.compile(r"^(Connected|Success|No changes?|Ready|Error: executed|Loaded fact|Skipped|Starting)\b|^$")


class Collector(logging.Handler):
    """host → the lines logged about it."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: dict[str, list[str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        match = _HOST.match(_ANSI.sub("", record.getMessage()))
        if match and not _ROUTINE.match(match["text"]):
            self.said.setdefault(match["host"], []).append(match["text"].strip())


def result(said: dict[str, list[str]], code: int) -> dict[str, Any]:
    """What pyinfra's state holds at the end of a run."""
    from pyinfra.context import ctx_state
    from pyinfra_cli.prints import build_plan_json, build_results_json

    if not ctx_state.isset():
        return {"code": code, "plan": [], "results": [], "failed": [], "said": said}
    state = ctx_state.get()
    return {
        "code": code,
        "plan": build_plan_json(state),
        "results": build_results_json(state)["operations"],
        "failed": sorted(host.name for host in state.failed_hosts),
        "said": said,
    }


def main() -> None:
    from pyinfra_cli.main import main as pyinfra

    collector = Collector()
    logging.getLogger("pyinfra").addHandler(collector)
    code: Any = 0
    try:
        pyinfra()
    except SystemExit as end:
        code = end.code
    finally:
        if path := os.environ.get("GOLDSMITH_RESULT"):
            with open(path, "w") as file:
                json.dump(result(collector.said, code if isinstance(code, int) else 1), file)
    sys.exit(code)


if __name__ == "__main__":
    main()
