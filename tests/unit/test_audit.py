"""Judging, census, folding and reports, from saved facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from goldsmith import File, Finding, Node, Package, Severity
from goldsmith.audit.census import census, facts_of, fingerprint
from goldsmith.audit.findings import judge
from goldsmith.audit.fold import fold_findings
from goldsmith.audit.run import Audit
from goldsmith.fleet.answer import Answer
from goldsmith.fleet.saved import read_saved, save
from goldsmith.model.desired import gather
from goldsmith.model.finding import worst
from goldsmith.model.probe import Probe
from goldsmith.plan import Plan
from goldsmith.probe.bundle import CORE
from goldsmith.report import audit_json, audit_svg, audit_text
from goldsmith.role import Role

from .make import lock, package, probe


def plan(name: str = "node01") -> Plan:
    desired = gather({"nccl": [Package("libnccl2", "2.22.3-1-1", held=True), File("/etc/nccl.conf", "x\n")]})
    bare = Role("nccl", Path("/nonexistent"), "NCCL", ())
    return Plan(Node(name, "lab"), lock(), (bare,), desired, "inventories/lab")


GOOD: dict[str, Any] = {
    **{name: {} for name in CORE},
    "packages": {"libnccl2": package("2.22.3-1-1", held=True)},
    "files": {"/etc/nccl.conf": {
        "type": "file", "mode": 0o644, "owner": "root", "group": "root", "sha256": File("/etc/nccl.conf", "x\n").sha256,
    }},
}  # fmt: skip


def audit(findings: list[Finding], nodes: int = 4) -> Audit:
    names = tuple(f"node{number:02}" for number in range(1, nodes + 1))
    return Audit("inventories/lab", names, tuple(findings), dict.fromkeys(names, "0123456789ab"), {"lab": "f" * 64},
                 "2026-11-30T00:00:00Z", 1.2, False)  # fmt: skip


def test_a_good_node_has_no_findings() -> None:
    assert judge(plan(), Answer("node01", probe(**GOOD))) == []


def test_no_answer_is_unknown() -> None:
    [one] = judge(plan(), Answer("node01", reason="can't be reached: connection refused"))
    assert (one.severity, one.check) == (Severity.UNKNOWN, "goldsmith.reachable")


def test_a_part_that_is_missing_is_unknown() -> None:
    for part in ("failed_units", "kernel", "os", "packages", "files"):
        answer = Answer("node01", probe(**{name: facts for name, facts in GOOD.items() if name != part}))
        assert Severity.UNKNOWN in {one.severity for one in judge(plan(), answer)}, part


@pytest.mark.parametrize("facts", [{"packages": {"libnccl2": "x"}}, {"files": {"/etc/nccl.conf": {"mode": "0644"}}},
                                   {"files": {"/etc/nccl.conf": []}}, {"kernel": {"reboot": 3}},
                                   {"packages": {"libnccl2": {"version": []}}}, {"failed_units": [{}]}])  # fmt: skip
def test_odd_facts_are_unknown_and_not_the_audits_end(facts: dict[str, Any]) -> None:
    found = judge(plan(), Answer("node01", probe(**{**GOOD, **facts})))
    assert found and max(one.severity for one in found) is Severity.UNKNOWN


def test_holds_that_nobody_promised_are_told() -> None:
    parts = {**GOOD, "packages": {**GOOD["packages"], "chrony": package("4.6.1-3", held=True)}}
    [one] = judge(plan(), Answer("node01", probe(**parts)))
    assert (one.check, one.actual) == ("goldsmith.extra-holds", "chrony")


def test_what_the_probe_could_not_see_is_unknown() -> None:
    found = judge(plan(), Answer("node01", probe(root=False, **{**GOOD, "role.nccl": "timed out after 5 s"})))
    assert [(one.check, one.severity) for one in found] == [
        ("goldsmith.root", Severity.UNKNOWN),
        ("nccl.probe", Severity.UNKNOWN),
    ]


def test_findings_name_source_and_remedy() -> None:
    parts = {**GOOD, "packages": {"libnccl2": package("2.21.5-1", held=True)}}
    [one] = judge(plan(), Answer("node01", probe(**parts)))
    assert one.check == "nccl.package" and one.source == "images/lab/image.lock"
    assert one.remedy == "goldsmith deploy inventories/lab --limit {nodes}"


def test_extra_packages_failed_units_and_reboots_are_told() -> None:
    parts = {
        **GOOD,
        "packages": {**GOOD["packages"], "slurmd": package("24.11"), "gone": package("1", status="rc")},
        "failed_units": ["nvidia-persistenced.service"],
        "kernel": {"reboot": ["the running kernel 6.1 isn't the newest installed, 6.12"]},
    }
    found = judge(plan(), Answer("node01", probe(**parts)))
    assert {one.check: one.actual for one in found} == {
        "goldsmith.extra-packages": "slurmd 24.11",
        "goldsmith.failed-unit": "failed",
        "goldsmith.reboot-needed": "the running kernel 6.1 isn't the newest installed, 6.12",
    }


def test_worst_is_fail_then_unknown() -> None:
    assert worst([]) is Severity.OK
    assert worst([Severity.UNKNOWN, Severity.WARN]) is Severity.UNKNOWN
    assert worst([Severity.UNKNOWN, Severity.FAIL]) is Severity.FAIL


def test_census_names_the_odd_one() -> None:
    probes = [
        probe(f"node{i:02}", os={"pretty": "a" if i != 3 else "b", "hostname": f"node{i:02}"}) for i in range(1, 5)
    ]
    [one] = census(probes)
    assert (one.node, one.fact, one.actual) == ("node03", "os pretty", "b")
    assert one.expected == "a (as on 3 of 4 nodes)" and "node[01-02,04]" in one.source
    assert len({fingerprint(one) for one in probes}) == 2


def test_census_of_two_calls_nobody_odd() -> None:
    found = census([probe("node01", os={"pretty": "a"}), probe("node02", os={"pretty": "b"})])
    assert {(one.node, one.expected) for one in found} == {("node01", "all the same"), ("node02", "all the same")}


def test_census_is_silent_about_what_was_told() -> None:
    probes = [probe(f"n{i}", packages={"torch": package("1" if i else "2")}) for i in range(3)]
    assert census(probes) != []
    assert census(probes, {"packages torch"}) == []
    assert census(probes, {"packages tor"}) != []


def test_own_facts_don_t_count() -> None:
    one = probe("a", os={"hostname": "a", "boot_id": "1", "uptime_s": 1}, files={"/x": {"mtime": "1", "ctime": "2"}})
    two = probe("b", os={"hostname": "b", "boot_id": "2", "uptime_s": 9}, files={"/x": {"mtime": "3", "ctime": "4"}})
    assert fingerprint(one) == fingerprint(two) and census([one, two]) == []


def test_items_of_lists_are_named_by_themselves() -> None:
    def nccl(*libraries: str) -> Probe:
        return probe(
            "n", **{"role.nccl": {"libraries": [{"path": path, "size": 1, "mtime": path} for path in libraries]}}
        )

    facts = facts_of(nccl("/a", "/b"))
    assert facts == {f"role.nccl libraries {path} {key}": value
                     for path in ("/a", "/b") for key, value in (("path", path), ("size", "1"))}  # fmt: skip
    assert set(facts_of(nccl("/0", "/a", "/b"))) > set(facts)


def test_a_units_history_doesn_t_count() -> None:
    unit = {"load": "masked", "state": "masked", "active": "inactive", "sub": "dead", "result": "success"}
    one, two = probe("a", units={"x.timer": unit}), probe("b", units={"x.timer": {**unit, "result": "resources"}})
    assert fingerprint(one) == fingerprint(two)
    assert fingerprint(one) != fingerprint(probe("b", units={"x.timer": {**unit, "active": "failed"}}))


def torch(node: str, since: str = "", version: str = "2.5.1-1") -> Finding:
    return Finding(node, "pytorch.package", Severity.FAIL, "python3-torch", "2.6.0+dfsg-7", version, since=since,
                   remedy="goldsmith deploy inventories/lab --limit {nodes}")  # fmt: skip


def test_the_same_is_told_once() -> None:
    found = [
        torch("node02", "2026-11-30T10:00:00Z"),
        torch("node04", "2026-11-30T11:00:00Z"),
        torch("node03", version="x"),
    ]
    first, second = fold_findings(found)
    assert (first.nodeset, second.nodeset) == ("node[02,04]", "node03")
    assert first.since == "2026-11-30T10:00:00Z … 2026-11-30T11:00:00Z"
    assert first.remedy == "goldsmith deploy inventories/lab --limit node[02,04]"


def test_text_has_both_versions_on_one_line() -> None:
    text = audit_text(audit([torch("node02"), torch("node04")]))
    [line] = [line for line in text.splitlines() if "2.5.1-1" in line]
    assert "2.6.0+dfsg-7" in line
    assert "node[02,04]" in text and "FAIL" in text and "\x1b" not in text
    assert "node[01,03] are as the lock and the roles say" in text
    assert text == "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_a_thousand_nodes_are_few_lines() -> None:
    findings = [torch(f"node{number:04}") for number in range(1, 1001)]
    assert len(audit_text(audit(findings, 4)).splitlines()) < 15


def test_markup_in_facts_is_text() -> None:
    odd = Finding("node01", "x.y", Severity.WARN, "[bold]x[/nope]", "[red]", "{nodes}", remedy="{a}")
    assert "[bold]x[/nope]: expected [red], found {nodes}" in audit_text(audit([odd]))


def test_what_a_node_says_commands_no_terminal() -> None:
    odd = Finding("node01", "x.y", Severity.WARN, "a", "b", "\x1b]0;pwned\x07c", evidence=("\x1b[2J",))
    assert not {"\x1b", "\x07"} & set(audit_text(audit([odd])))


def test_a_bare_nodes_missing_packages_are_one_finding() -> None:
    packages = {f"p{number:02}": ("1", "s", None) for number in range(40)}
    bare = Role("nccl", Path("/nonexistent"), "NCCL", ())
    desired = gather({"nccl": [Package(name, "1") for name in packages]})
    one = Plan(Node("node01", "lab"), lock(packages), (bare,), desired, "inventories/lab")
    [told] = judge(one, Answer("node01", probe(**{**GOOD, "packages": {}})))
    assert told.actual == "40 packages of this role aren't installed" and "p05" in told.evidence[0]


def test_json_and_svg() -> None:
    data = json.loads(audit_json(audit([torch("node02"), torch("node04")])))
    assert data["severity"] == "FAIL" and data["exit_code"] == 2 and len(data["findings"]) == 2
    assert data["folded"][0]["node"] == "node[02,04]"
    svg = audit_svg(audit([torch("node02")]))
    assert svg.startswith("<svg") and "font-face" not in svg and "2.5.1-1" in svg


def test_saved_probes(tmp_path: Path) -> None:
    one = probe("node01", **GOOD)
    save(tmp_path, [Answer("node01", one), Answer("node02", reason="dead")])
    (tmp_path / "node03.json").write_text("{")
    (tmp_path / "node04.json").write_text('{"schema": 2}')
    answers = read_saved(tmp_path, [Node(f"node0{number}", "lab") for number in range(1, 5)])
    assert answers[0].probe == one
    for answer, says in zip(answers[1:], ["isn't there", "can't be read", "schema 2"], strict=True):
        assert says in answer.reason


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "answered nothing"),
        ("bash: motd\n", "isn't JSON"),
        ("[]", "schema 'list'"),
        ('{"schema": 1}', "no parts"),
        ('{"schema": 1, "parts": {}, "error": "python3 is 3.6"}', "python3 is 3.6"),
        ('{"schema": 1, "parts": {}, "seconds": "x"}', "malformed"),
    ],
)
def test_rubbish_is_named(text: str, says: str) -> None:
    from goldsmith import GoldsmithError
    from goldsmith.model.probe import parse_probe

    with pytest.raises(GoldsmithError, match=says):
        parse_probe("node01", text)
