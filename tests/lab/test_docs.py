"""Every command of the documentation, run in the tests' lab in the page's order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from goldsmith.project import state_dir
from tests.docs import PROJECT, commands

from .conftest import Lab

# What a command ends with on a drifted lab; everything else ends with 0.
DRIFTED = {"audit inventories/lab": 2, "deploy inventories/lab --check": 2, "audit inventories/lab --saved probes": 0}


def run(lab: Lab, words: list[str], probes: str, expect: int = 0) -> None:
    """A documented command, on the tests' site."""
    assert words[0] == "goldsmith"
    spoken = {"inventories/lab": "SITE", "probes": probes, "audit.json": f"{probes}.json"}
    state = str(state_dir(PROJECT))
    spoken |= {word: word.replace(".goldsmith", state, 1) for word in words if word.startswith(".goldsmith/")}
    more = ["--site", "SITE"] if words[1] == "lab" else []
    lab.goldsmith(*[spoken.get(word, word) for word in words[1:]], *more, expect=expect)


def test_a_node_drifted(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    probes = str(tmp_path_factory.mktemp("docs") / "probes")
    lab.on("node01", "echo x >> /etc/nccl.conf")
    drifted = True
    for words in commands(PROJECT / "docs/a-node-drifted.md"):
        line = " ".join(words[1:])
        run(lab, words, probes, DRIFTED.get(line, 0) if drifted else 0)
        if line == "deploy inventories/lab":
            drifted = False
    assert not drifted


def test_exit_codes_and_upgrade(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    probes = str(tmp_path_factory.mktemp("docs") / "probes")
    for page in ("exit-codes.md", "upgrade-the-driver.md"):
        for words in commands(PROJECT / "docs" / page):
            run(lab, words, probes)


def test_lock_and_pool(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    probes = str(tmp_path_factory.mktemp("docs") / "probes")
    for page in ("lock-an-image.md", "the-pool.md"):
        for words in commands(PROJECT / "docs" / page):
            run(lab, words, probes)


def test_build_an_image(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    probes = str(tmp_path_factory.mktemp("docs") / "probes")
    for words in commands(PROJECT / "docs/build-an-image.md"):
        run(lab, words, probes)


@pytest.fixture
def with_node05(lab: Lab) -> Iterator[Lab]:
    hosts = lab.site / "hosts.yml"
    before = hosts.read_text()
    hosts.write_text(before.replace("node[01:04]", "node[01:05]"))
    yield lab
    lab.goldsmith("lab", "stop", "node05", "--remove", "--site", "SITE")
    hosts.write_text(before)


def test_add_a_node(with_node05: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    probes = str(tmp_path_factory.mktemp("docs") / "probes")
    # the page's last command starts the node that its first ones are about
    *steps, start = commands(PROJECT / "docs/add-a-node.md")
    assert start[1:3] == ["lab", "start"]
    run(with_node05, start, probes)
    for words in steps:
        run(with_node05, words, probes, 2 if "--check" in words else 0)
