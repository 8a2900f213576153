"""What a long command says while it works: a line a step with its time, and what is going on in between.

On a terminal the current step is live; in CI's log each step is one plain line at its start and its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.status import Status

console = Console(stderr=True, highlight=False)


class Step:
    """A running step. `say` shows a detail in place (the last line of a tool, a percentage)."""

    def __init__(self, title: str, status: Status | None) -> None:
        self._title, self._status, self._last = title, status, 0.0
        self.result = ""
        self.failed = False

    def say(self, detail: str) -> None:
        if self._status:
            self._status.update(f"{escape(self._title)} [dim]{escape(detail.strip()[:90])}[/]")
        elif time.monotonic() - self._last > 15:  # a log: a sign of life, not a flood
            console.print(f"    {escape(detail.strip()[:100])}", soft_wrap=True)
            self._last = time.monotonic()


@contextmanager
def step(title: str) -> Iterator[Step]:
    """Show `title` while the block runs, then one line with the seconds it took and `result`;
    `failed` marks it as that without ending the block."""
    started = time.monotonic()
    live = console.is_terminal
    status = console.status(escape(title)) if live else None
    current = Step(title, status)
    current._last = started
    if status:
        status.start()
    else:
        console.print(f"  … {escape(title)}", soft_wrap=True)
    try:
        yield current
    except BaseException:
        if status:
            status.stop()
        console.print(f"  [red]✗[/] {escape(title)}", soft_wrap=True)
        raise
    if status:
        status.stop()
    seconds = time.monotonic() - started
    took = f" [dim]{seconds:.1f} s[/]" if seconds >= 0.1 else ""
    result = f": {escape(current.result)}" if current.result else ""
    mark = "[red]✗[/]" if current.failed else "[green]✓[/]"
    console.print(f"  {mark} {escape(title)}{result}{took}", soft_wrap=True)
