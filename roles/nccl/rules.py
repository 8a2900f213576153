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
# Forced for a whole node they are mostly a measurement of another node.
FIXED = {
    "NCCL_NET_GDR_LEVEL": "adapter and GPU that are far apart then use GPUDirect RDMA, or near ones don't",
    "NCCL_NET_GDR_C2C": "adapter and GPU that are far apart then use GPUDirect RDMA, or near ones don't",
}
# For debugging, in one job's environment.
DEBUGGING = re.compile(
    r"NCCL_(IB_DISABLE|P2P_DISABLE|SHM_DISABLE|NET_GDR_READ|BUFFSIZE|(MIN|MAX)_N?CHANNELS|(MIN|MAX)_CTAS|DEBUG)"
)
# … of which these alone print next to nothing: NCCL's own example of /etc/nccl.conf has one of them.
QUIET = {("NCCL_DEBUG", "WARN"), ("NCCL_DEBUG", "VERSION")}


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


def trapped(value: str) -> Iterator[str]:
    """The names in NCCL_IB_HCA that match more than one adapter: without a `=` in front they are prefixes, and mlx5_1
    takes mlx5_10 to mlx5_17 as well (NVIDIA-NeMo/nemo-platform#922)."""
    value = value.removeprefix("^")
    for name in () if value.startswith("=") else value.split(","):
        device = name.split(":")[0].strip()
        # mlx5, without a number, is meant to be a prefix
        if re.search(r"[a-z_]\d+$", device) and not re.fullmatch(r"mlx\d", device):
            yield device
