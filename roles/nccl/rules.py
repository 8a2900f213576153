"""/etc/nccl.conf by the rules of NCCL's own parser (param.cc), for writing it and for judging one on a node.

One KEY=VALUE a line; `#` comments only as the first character of a line; nothing is trimmed, no `export`, no
quotes, no comment after a value. It never complains: ` NCCL_DEBUG = INFO` defines " NCCL_DEBUG ", which nobody
reads. The first line of a key wins, and the process's own environment wins over the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

KEY = re.compile(r"NCCL_[A-Z0-9_]+")
LIMIT = 1023  # bytes, of a key and of a value
# Set for a whole node, these are wrong: LL128 on a platform without it corrupts data, and since 2.24 an NCCL_ALGO
# without ring fails instead of falling back.
NEED_REASON = {
    "NCCL_ALGO": "collectives that the algorithm can't do fail",
    "NCCL_PROTO": "LL128 on a platform that doesn't support it corrupts data",
}
# For debugging, in one job's environment.
DEBUGGING = re.compile(
    r"NCCL_(IB_DISABLE|P2P_DISABLE|SHM_DISABLE|NET_GDR_READ|BUFFSIZE|(MIN|MAX)_N?CHANNELS|(MIN|MAX)_CTAS|DEBUG)"
)


def problems(key: str, value: str) -> Iterator[str]:
    """What is wrong with a line's key and value, as the parser takes them. Nothing, mostly."""
    if key != key.strip() or value != value.strip():
        yield "a blank beside key or value is taken as part of it"
    elif key.startswith("export "):
        yield "`export` is taken as part of the name"
    elif not KEY.fullmatch(key):
        yield "isn't an NCCL_ variable"
    if "\n" in value or "\r" in value:
        yield "a line break in the value"
    if "#" in value:
        yield "what follows `#` is taken as part of the value"
    if value[:1] in "'\"" and value:
        yield "the quotes are taken as part of the value"
    if not value:
        yield "has no value"
    if len(key.encode()) > LIMIT or len(value.encode()) > LIMIT:
        yield f"longer than {LIMIT} bytes is cut"
