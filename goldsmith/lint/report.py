"""A lint's report, for people and for programs."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator

import click

from goldsmith.lint.engine import LockState, Problem, Report
from goldsmith.model.finding import Severity
from goldsmith.model.rule import Rule

WIDTH = 110
COLOR = {Severity.OK: "green", Severity.WARN: "yellow", Severity.FAIL: "red", Severity.UNKNOWN: "magenta"}
LOCK: dict[LockState, str] = {
    "used": "versions are the lock's",
    "none": "no lock, versions are image.yml's pins",
    "stale": "the lock is stale, versions are image.yml's pins",
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def report_json(report: Report) -> str:
    """schema 1: one object, problems worst first."""
    return json.dumps(
        {
            "schema": 1,
            "image": report.image,
            "severity": report.severity.name,
            "exit_code": int(report.severity),
            "lock": report.lock,
            "facts_as_of": report.facts_as_of,
            "problems": [one.to_json() for one in report.problems],
        },
        indent=1,
    )


def report_text(report: Report) -> str:
    """A block a problem, in the audit's manner; the last line sums up. Styled: click.echo strips that in a pipe."""
    counts = ", ".join(
        f"{sum(one.severity is severity for one in report.problems)} {severity.name.lower()}"
        for severity in (Severity.FAIL, Severity.UNKNOWN, Severity.WARN)
    )
    verdict = click.style(report.severity.name, fg=COLOR[report.severity], bold=True)
    about = f"({LOCK[report.lock]}; facts as of {report.facts_as_of})"
    blocks = ["\n".join(_block(one)) + "\n" for one in report.problems]
    return "\n".join([*blocks, f"{verdict} {report.image}: {counts} {click.style(about, dim=True)}"])


def rules_text(rules: Iterable[Rule]) -> str:
    """Every rule with its id, severity, what must hold and who says so."""
    lines = []
    for one in sorted(rules, key=lambda rule: rule.id):
        severity = one.severity if one.verified or one.severity is not Severity.FAIL else Severity.WARN
        lines.append(f"{_head(severity)}{one.id:<7}{_plain(one.text)}")
        lines += _wrapped("by", one.source)
    return "\n".join(lines)


def _block(one: Problem) -> Iterator[str]:
    yield f"{_head(one.severity)}{click.style(one.id, fg='cyan')}  {click.style(_plain(one.where), bold=True)}"
    yield from _wrapped("", one.what)
    yield from _wrapped("by", one.source)
    yield from _wrapped("do", one.remedy)


def _head(severity: Severity) -> str:
    return click.style(f"{severity.name:<8}", fg=COLOR[severity], bold=True)


def _wrapped(label: str, text: str) -> Iterator[str]:
    lines = textwrap.wrap(_plain(text), WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    for number, line in enumerate(lines):
        yield f"  {label if number == 0 else '':<6}{line}"


def _plain(text: str) -> str:
    """What a file says, without what a terminal would obey."""
    return _CONTROL.sub("�", text)
