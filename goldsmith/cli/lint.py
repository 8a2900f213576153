"""`goldsmith lint IMAGE`."""

from __future__ import annotations

from pathlib import Path

import click

from goldsmith.errors import GoldsmithError


@click.command()
@click.argument("image", type=click.Path(path_type=Path, file_okay=False), required=False)
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--rules", is_flag=True, help="List every rule with its severity and who says so, and lint nothing.")
def lint(image: Path | None, format_: str, rules: bool) -> int:
    """What can't work together in IMAGE (images/NAME), before anything is built: kernel, driver, CUDA, NCCL, PyTorch.

    Reads image.yml, what it extends, and image.lock if there is one; nothing is fetched. Exits with 0 OK, 1 WARN,
    2 FAIL, 3 UNKNOWN (a version or a GPU isn't known, and nothing is worse).
    """
    from goldsmith.lint.engine import every_rule, lint_image
    from goldsmith.lint.report import report_json, report_text, rules_text
    from goldsmith.project import find_project

    if rules:
        if format_ == "json":
            raise GoldsmithError("--rules is a text for people", hint="leave out --format json")
        click.echo(rules_text(every_rule(find_project(image))))
        return 0
    if image is None:
        raise GoldsmithError("say which image", hint="e.g. goldsmith lint images/lab; or --rules")
    report = lint_image(find_project(image), image)
    click.echo(report_json(report) if format_ == "json" else report_text(report))
    return int(report.severity)
