"""Wait until no other process holds dpkg's locks; say who does if it won't let go. Sent to nodes: Python 3.8, stdlib.

The argument is how many seconds to wait. dpkg itself doesn't wait at all, and apt-mark with it; apt-get waits for its
own lock alone (apt.conf(5), DPkg::Lock::Timeout; kubernetes-sigs/image-builder#2058). Nothing is locked here.
"""

from __future__ import annotations

import fcntl
import struct
import sys
import time

LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
# struct flock of 64-bit Linux: type, whence, start, length, pid
FLOCK = "hhqqi4x"


def holder() -> int:
    """The process that holds one of the locks, or 0."""
    for path in LOCKS:
        try:
            with open(path, "rb+", buffering=0) as file:
                asked = struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
                kind, _, _, _, pid = struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
                if kind != fcntl.F_UNLCK:
                    return int(pid)
        except FileNotFoundError:
            continue
    return 0


def command(pid: int) -> str:
    """The process's command line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(300).replace(b"\0", b" ").decode("utf-8", "replace").strip() or "?"
    except OSError:
        return "gone meanwhile"


def main() -> None:
    seconds = float(sys.argv[1])
    ends = time.monotonic() + seconds
    pid = holder()
    while pid and time.monotonic() < ends:
        time.sleep(0.2)
        pid = holder()
    if pid:
        print(f"process {pid} ({command(pid)}) holds dpkg's lock, and still did after {seconds:g} s")
        sys.exit(1)


main()
