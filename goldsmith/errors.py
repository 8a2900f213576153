"""The one way goldsmith fails: what happened, where, and what to do about it.

Every error that a user can cause is a GoldsmithError; the command line prints it without a traceback and
exits with 4 (docs/exit-codes.md). A GoldsmithError raised half-way must leave nothing half made.
"""

from __future__ import annotations


class GoldsmithError(Exception):
    """Something the user can act on.

    what:  one sentence, what happened.
    where: file, line, field or node it happened at, e.g. "images/lab/image.yml:12, families.nccl.version".
    hint:  what to do.
    """

    exit_code = 4

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.hint = what, where, hint

    def __str__(self) -> str:
        return "".join(
            (
                f"{self.where}: " if self.where else "",
                self.what,
                f"\n  {self.hint}" if self.hint else "",
            )
        )


class Refused(GoldsmithError):
    """Goldsmith works, and its verdict is FAIL: what was looked at must not be used as it is. Exits with 2."""

    exit_code = 2


class NotBuiltYet(GoldsmithError):
    """A feature that is named in the documentation but isn't there says so, and does nothing."""

    def __init__(self, feature: str) -> None:
        super().__init__(f"{feature} isn't built yet", hint="nothing was done; README.md lists what is there")
