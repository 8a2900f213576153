"""The command line: `goldsmith VERB …`. Each verb's module holds its options; errors are told here, once."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from goldsmith.errors import GoldsmithError

# verb → module of goldsmith.cli; loaded when used, so that `goldsmith probe` doesn't pay for ansible
VERBS = {
    "audit": "audit", "boot": "boot", "build": "build", "deploy": "deploy", "hygiene": "hygiene", "lab": "lab",
    "lint": "lint", "lock": "lock", "new-role": "new_role", "pool": "pool", "probe": "probe", "verify": "verify",
}  # fmt: skip
# named in the documentation, built by an issue of their own
LATER = {
    "render": "switch configuration from the inventory",
    "raid": "NVMe RAID plans", "validate": "the validation suite",
    "nccl": "reading nccl-tests",
}  # fmt: skip


class _Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in LATER:
            return _later(name)
        if name not in VERBS:
            return None
        command = getattr(import_module(f"goldsmith.cli.{VERBS[name]}"), name.replace("-", "_"))
        return command  # type: ignore[no-any-return]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        import difflib

        if args and args[0] not in VERBS and args[0] not in LATER and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], [*VERBS, *LATER], n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else "see goldsmith --help"
            raise GoldsmithError(f"there is no verb {args[0]}", hint=hint)
        return super().resolve_command(ctx, args)


def _later(name: str) -> click.Command:
    from goldsmith.errors import NotBuiltYet

    @click.command(name, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def command() -> None:
        raise NotBuiltYet(f"goldsmith {name} ({LATER[name]})")

    return command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="goldsmith")
def cli() -> None:
    """One lock, deployed to every node, baked into the image, and audited before each run.

    \b
    Exit codes: 0 OK, 1 WARN, 2 FAIL, 3 UNKNOWN; 4 the tool itself failed.
    """


def main() -> None:
    """Run the command line: no traceback for what a user can cause, exit code 4 for the tool's own failures."""
    if state := os.environ.get("GOLDSMITH_STATE"):
        # some of what we start works in another folder than the user
        os.environ["GOLDSMITH_STATE"] = os.path.abspath(state)
    from goldsmith import host

    host.tidy_on_signals()  # SIGTERM and a closed terminal clean up as Ctrl-C does
    try:
        result = cli.main(standalone_mode=False)
        sys.exit(result if isinstance(result, int) else 0)
    except GoldsmithError as error:
        _fail(str(error), error.exit_code)
    except click.UsageError as error:
        error.show()
        sys.exit(4)
    except click.ClickException as error:
        _fail(error.format_message(), 4)
    except (KeyboardInterrupt, click.Abort):
        what = "interrupted; nothing is left half made"
        if sys.argv[1:2] == ["deploy"]:
            what = "interrupted; a node may be half-way through a step: deploy again, or audit, to know"
        _fail(what, 130)
    except BrokenPipeError:
        # `goldsmith audit … | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        # 1 would read as WARN, to a monitoring system and to CI
        if os.environ.get("GOLDSMITH_TRACEBACK"):
            raise
        what = f"a defect of goldsmith or of a role: {type(error).__name__}: {error}"
        _fail(f"{what}\n  GOLDSMITH_TRACEBACK=1 shows where; please report it", 4)


def _fail(message: str, code: int) -> None:
    click.secho("error: ", fg="red", bold=True, nl=False, err=True)
    click.echo(message, err=True)
    sys.exit(code)
