"""A verb with an own meaning and others below it: `goldsmith lock IMAGE`, `goldsmith lock diff A B`."""

from __future__ import annotations

from typing import Any

import click


class DefaultGroup(click.Group):
    """What isn't one of its commands is the argument of the one named `default`."""

    def __init__(self, *args: Any, default: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The default's help, then the other commands."""
        default = self.commands[self.default]
        inner = click.Context(default, info_name=ctx.info_name, parent=ctx.parent)
        default.format_help(inner, formatter)
        others = [(name, one) for name, one in sorted(self.commands.items()) if name != self.default]
        with formatter.section("Also"):
            formatter.write_dl([(f"{ctx.info_name} {name}", one.get_short_help_str(80)) for name, one in others])
