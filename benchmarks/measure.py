"""Timing commands side by side: interleaved, so that a busy machine slows all of them alike."""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class Times:
    """wall: seconds of each round. cpu: user and system seconds of the command and all that it started."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def command(argv: Sequence[str], codes: Sequence[int] = (0,)) -> Callable[[], None]:
    """A round that runs a program; another exit code than `codes` stops the benchmark."""

    def once() -> None:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
        if done.returncode not in codes:
            raise SystemExit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stderr[-2000:]}")

    return once


def compare(what: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, Times]:
    """Run each once to warm up, then `rounds` times in turn."""
    times = {name: Times() for name in what}
    for number in range(rounds + 1):
        for name, once in what.items():
            before, started = _cpu(), time.perf_counter()
            once()
            if number:
                times[name].wall.append(time.perf_counter() - started)
                times[name].cpu.append(_cpu() - before)
    return times


def _cpu() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def report(times: Mapping[str, Times]) -> str:
    """A table: the median of each, and its ratio to the first."""
    first = statistics.median(next(iter(times.values())).wall)
    lines = ["| what | wall s | CPU s | ratio |", "|---|---|---|---|"]
    for name, one in times.items():
        wall = statistics.median(one.wall)
        lines.append(f"| {name} | {wall:.3f} | {statistics.median(one.cpu):.2f} | {wall / first:.1f} |")
    return "\n".join(lines)
