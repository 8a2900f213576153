"""A fake QEMU and a fake qemu-img, to be put on PATH: they answer QMP and execute nothing."""

from __future__ import annotations

import sys
from pathlib import Path

_QEMU = """#!{python}
# A fake QEMU of goldsmith's tests.
import json, os, re, socket, sys, time
words = sys.argv[1:]
accelerator = words[words.index("-accel") + 1].split(",")[0]
plan = json.loads(open({plan!r}).read()).get(accelerator, {{}})
open({plan!r} + ".pids", "a").write(f"{{accelerator}} {{os.getpid()}}\\n")
if "refuses" in plan:
    sys.exit("qemu-system-x86_64: " + plan["refuses"])
fd = int(re.search(r"socket,id=qmp,fd=(\\d+)", " ".join(words))[1])
file = socket.socket(fileno=fd).makefile("rwb")
def say(answer):
    file.write((json.dumps(answer) + "\\r\\n").encode())
    file.flush()
say({{"QMP": {{"version": {{"qemu": {{"major": 9, "minor": 0, "micro": 0}}}}, "capabilities": []}}}})
started = time.monotonic()
for line in file:
    command = json.loads(line)["execute"]
    if command == "query-status":
        dead = "dies" in plan and time.monotonic() - started > plan["dies"]
        if dead:
            print("KVM internal error. Suberror: 1", file=sys.stderr, flush=True)
        say({{"return": {{"status": "internal-error" if dead else "running"}}}})
    elif command == "human-monitor-command":
        row = "  TCP[HOST_FORWARD]  10       127.0.0.1 37299       10.0.2.15    22     0     0"
        say({{"return": "Hub -1 (net):\\r\\n  Protocol[State]    FD  Source\\r\\n" + row + "\\r\\n"}})
    elif command == "system_powerdown":
        say({{"return": {{}}}})
        if not plan.get("stubborn"):
            sys.exit(0)
    else:
        say({{"return": {{}}}})
"""
_IMG = """#!{python}
# A fake qemu-img of goldsmith's tests.
import sys
open(sys.argv[-1], "w").write("overlay")
"""


def install(folder: Path, plan: Path) -> Path:
    """A folder for PATH. plan: a JSON file that says what happens under each accelerator: `dies` after so many
    seconds, `refuses` to start with these words, is `stubborn` about its power button.
    """
    folder.mkdir()
    for name, text in (("qemu-system-x86_64", _QEMU), ("qemu-img", _IMG)):
        (folder / name).write_text(text.format(python=sys.executable, plan=str(plan)))
        (folder / name).chmod(0o755)
    return folder
