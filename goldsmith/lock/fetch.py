"""Fetching debs by address and hash, through apt's own transports (proxies, mirror lists, TLS, credentials).

A locked deb is fetched by its file name and its sha256 alone: no index is needed, so a committed lock still
installs when the indexes have moved on and the mirror's pool hasn't.
Facts: `apt-helper download-file URI FILE HASH …` (apt's own, it checks the hash); APT::Status-Fd lines are
`dlstatus:N:PERCENT:TEXT` (apt's README.progress-reporting).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

from goldsmith.errors import GoldsmithError
from goldsmith.lock.apt import HELPER, Apt, Say

ROUNDS = 2


@dataclass(frozen=True)
class Wanted:
    """One file to fetch. path: where it goes. size: bytes."""

    uri: str
    path: Path
    sha256: str
    size: int


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def fetch(apt: Apt, wanted: Sequence[Wanted], incoming: Path, say: Say) -> list[Wanted]:
    """Fetch files into place, each renamed there when its hash is right.

    incoming: an empty folder on the same file system. say: gets the progress.
    Returns what could not be had. Raises GoldsmithError only if nothing at all could be reached.
    """
    left = list(wanted)
    output = ""
    for _ in range(ROUNDS):
        if not left:
            break
        try:
            output = _download(apt, left, incoming, say)
        finally:  # after Ctrl-C, too: what is whole needn't be fetched again
            left = [one for number, one in enumerate(left) if not _take(one, incoming / f"{number}.deb")]
    if left and len(left) == len(wanted) and not re.search(r"\b404\b|Hash Sum|No such file", output):
        errors = [line for line in output.splitlines() if line.startswith("E:")]
        raise GoldsmithError(
            "no package could be fetched:\n  " + "\n  ".join(errors[:4]),
            where="fetch packages",
            hint="check the network, or the proxy in this machine's apt settings, and run it again",
        )
    return left


def _download(apt: Apt, wanted: Sequence[Wanted], incoming: Path, say: Say) -> str:
    arguments = []
    for number, one in enumerate(wanted):
        arguments += [one.uri, str(incoming / f"{number}.deb"), f"SHA256:{one.sha256}"]
    report = reporter(say, len(wanted), sum(one.size for one in wanted), incoming)
    # 2 MB/s is the slowest mirror that we wait for to the end
    timeout = 600 + sum(one.size for one in wanted) / 2e6
    done = apt.run(
        [HELPER, "-q", "-o", "APT::Status-Fd=1", "--", "download-file", *arguments],
        timeout=timeout,
        what="fetch packages",
        check=False,
        say=report,
    )
    return done.out


def _take(one: Wanted, path: Path) -> bool:
    """Move a fetched file into place if it is the right one."""
    if not path.is_file() or path.stat().st_size != one.size or file_sha256(path) != one.sha256:
        path.unlink(missing_ok=True)
        return False
    one.path.parent.mkdir(parents=True, exist_ok=True)
    path.chmod(0o644)
    path.rename(one.path)
    return True


def parse_status(line: str) -> int | None:
    """The number of the file that apt is at, of a Status-Fd line; None for other lines."""
    match = re.match(r"dlstatus:(\d+):([\d.]+):", line)
    return int(match[1]) if match else None


def reporter(say: Say, count: int, size: int, incoming: Path) -> Callable[[str], None]:
    """Turns apt's lines into `57 of 237, 213 of 611 MB`. The percentage in them counts files, not bytes."""
    last = 0

    def report(line: str) -> None:
        nonlocal last
        number = parse_status(line)
        if number is None or number == last:
            return
        last = number
        have = sum(path.stat().st_size for path in incoming.glob("*.deb"))
        say(f"{number} of {count}, {have / 1e6:.0f} of {size / 1e6:.0f} MB")

    return report
