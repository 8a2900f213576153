"""Reports: what an audit found, for people (rich) and for programs (JSON)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from goldsmith.audit.fold import Folded, fold_findings
from goldsmith.audit.run import Audit
from goldsmith.inventory.site import fold
from goldsmith.model.finding import Severity

STYLE = {
    Severity.OK: "bold green",
    Severity.WARN: "bold yellow",
    Severity.FAIL: "bold red",
    Severity.UNKNOWN: "bold magenta",
}
WIDTH = 110


def audit_json(audit: Audit) -> str:
    """schema 1: one object; findings one a node, unfolded, worst first; `folded` as the text report tells them."""
    return json.dumps(
        {
            "schema": 1,
            "site": audit.site,
            "severity": audit.severity.name,
            "exit_code": int(audit.severity),
            "started": audit.started,
            "seconds": audit.seconds,
            "deep": audit.deep,
            "saved": audit.saved,
            "nodes": list(audit.nodes),
            "locks": audit.locks,
            "fingerprints": audit.fingerprints,
            "findings": [one.to_json() for one in audit.findings],
            "folded": [
                {**one.example.to_json(), "node": one.nodeset, "remedy": one.remedy, "since": one.since}
                for one in fold_findings(audit.findings)
            ],
        },
        indent=1,
    )


def audit_text(audit: Audit, width: int = WIDTH, *, color: bool = False) -> str:
    """The report as text, without colour codes unless asked."""
    console = Console(
        width=width, record=True, force_terminal=color, no_color=not color, file=StringIO(), highlight=False
    )
    console.print(audit_view(audit))
    # rich fills lines up to the width; in a log or a mail that is only in the way
    return "".join(f"{line.rstrip()}\n" for line in console.export_text(styles=color).splitlines())


def audit_svg(audit: Audit, width: int = WIDTH) -> str:
    """The report as a picture, for documentation."""
    console = Console(width=width, record=True, force_terminal=True, file=StringIO(), highlight=False)
    console.print(audit_view(audit))
    svg = console.export_svg(title=f"goldsmith audit {audit.site}")
    # rich has the reader's browser fetch a font from a third party; any monospaced one does
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def audit_view(audit: Audit) -> RenderableType:
    """The report for a rich console."""
    folded = fold_findings(audit.findings)
    parts: list[RenderableType] = [_head(audit)]
    parts += [_told(one) for one in folded]
    parts.append(_foot(audit, folded))
    return Group(*parts)


def _head(audit: Audit) -> RenderableType:
    locks = ", ".join(f"{image} {digest[:12]}" for image, digest in sorted(audit.locks.items()))
    line = Text.assemble(
        (f" {audit.severity.name} ", f"{STYLE[audit.severity]} reverse"),
        f"  {audit.site}: {len(audit.nodes)} node{'s' if len(audit.nodes) != 1 else ''}",
        (f"  {fold(audit.nodes)}", "bold"),
        (f"  lock {locks}  {_when(audit)}", "dim"),
    )
    return Padding(line, (0, 0, 1, 0))


def _when(audit: Audit) -> str:
    return f"saved probes of {audit.started} and later" if audit.saved else f"{audit.started}  {audit.seconds:.1f} s"


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def _plain(text: str) -> Text:
    """What a node said, without what a terminal would obey."""
    return Text(_CONTROL.sub("�", text))


def _told(one: Folded) -> RenderableType:
    """One finding: severity, nodes and check; then the fact with expected and found on one line; then why."""
    finding = one.example
    head = Text.assemble(
        (f"{finding.severity.name:<8}", STYLE[finding.severity]), (one.nodeset, "bold"), ("  ", ""),
        (finding.check, "cyan"),
    )  # fmt: skip
    body = Table.grid(padding=(0, 1))
    body.add_column(style="dim", no_wrap=True, min_width=5)
    body.add_column(overflow="fold")
    fact = _plain(finding.fact)
    if finding.expected or finding.actual:
        fact.append(": expected ")
        fact.append(_plain(finding.expected or "-").plain, style="green")
        fact.append(", found ")
        fact.append(_plain(finding.actual or "-").plain, style="red" if finding.severity is Severity.FAIL else "yellow")
    body.add_row("", fact)
    for line in one.evidence:
        body.add_row("", Text.assemble(_plain(line), style="dim"))
    if one.since:
        body.add_row("since", Text(one.since))
    if finding.source:
        body.add_row("by", Text(finding.source))
    if one.remedy:
        body.add_row("do", Text(one.remedy, style="bold"))
    return Group(head, Padding(body, (0, 0, 1, 2)))


def _foot(audit: Audit, folded: Iterable[Folded]) -> RenderableType:
    counts = [
        sum(one.severity is severity for one in folded) for severity in (Severity.FAIL, Severity.UNKNOWN, Severity.WARN)
    ]
    clean = set(audit.nodes) - {one.node for one in audit.findings}
    groups: dict[str, list[str]] = {}
    for node, print_ in audit.fingerprints.items():
        groups.setdefault(print_, []).append(node)
    lines = Text()
    if clean:
        same = "" if len(groups) != 1 else f", all with fingerprint {next(iter(groups))}"
        lines.append(f"{fold(clean)}", style="bold green")
        lines.append(f" {'is' if len(clean) == 1 else 'are'} as the lock and the roles say{same}\n")
    if len(groups) > 1:
        for print_, nodes in sorted(groups.items(), key=lambda item: -len(item[1])):
            lines.append(f"fingerprint {print_}  ", style="dim")
            lines.append(f"{fold(nodes)}\n")
    lines.append(f"{counts[0]} fail, {counts[1]} unknown, {counts[2]} warn", style="bold")
    return lines
