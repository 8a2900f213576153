"""`goldsmith lint` as it is called: the example images, copies of them with one change, places, formats, mistakes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from goldsmith.cli.lint import lint as command
from goldsmith.errors import GoldsmithError
from goldsmith.lint import engine
from goldsmith.lint.engine import Problem, every_rule, lint_image, severity_of
from goldsmith.lint.facts import FILE, Facts, packaged_facts
from goldsmith.lint.report import report_text
from goldsmith.lock.locking import image_digest
from goldsmith.model.finding import Severity
from goldsmith.model.image import read_image
from goldsmith.model.rule import Rule
from goldsmith.role import roles_of
from tests.unit.lint_cases import LOCKED, lock_of

PROJECT = Path(__file__).parents[2]
IMAGES = PROJECT / "images"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A project of its own with the example images; roles are the real ones."""
    (tmp_path / "roles").symlink_to(PROJECT / "roles")
    for name in ("common", "h100-ubuntu2404", "h200-ubuntu2404", "b200-ubuntu2404"):
        shutil.copytree(IMAGES / name, tmp_path / "images" / name, ignore=shutil.ignore_patterns("image.lock"))
    return tmp_path / "images"


def lint(directory: Path) -> dict[str, Problem]:
    return {one.id: one for one in lint_image(PROJECT, directory).problems}


def replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def run(*words: str) -> tuple[int, str]:
    """Exit code and output of `goldsmith lint …`; 4 for an error, as the command line has it."""
    result = CliRunner().invoke(command, list(words), standalone_mode=False)
    if isinstance(result.exception, GoldsmithError):
        return 4, str(result.exception)
    assert result.exception is None, result.exception
    return int(result.return_value), result.output


def test_h100_has_advice_and_no_error() -> None:
    code, text = run(str(IMAGES / "h100-ubuntu2404"))
    assert code == 1
    assert re.findall(r"^(WARN|FAIL|UNKNOWN) +(\w+)  ", text, re.MULTILINE) == [("WARN", "MVC2")]
    assert text.splitlines()[-1].startswith(f"WARN {IMAGES / 'h100-ubuntu2404'}: 0 fail, 0 unknown, 1 warn (no lock,")
    # … which its README shows as it is
    shown = [line[4:] for line in (IMAGES / "h100-ubuntu2404/README.md").read_text().splitlines() if line[:4] == "    "]
    told = text.replace(f"{PROJECT}/", "").splitlines()
    assert shown[1:] == told[: len(shown) - 1]


@pytest.mark.parametrize("name", ["h200-ubuntu2404", "b200-ubuntu2404"])
def test_the_others_have_nothing_to_say(name: str) -> None:
    code, text = run(str(IMAGES / name))
    assert (code, text.count("\n")) == (0, 1), text


def test_a_fabric_manager_one_patch_off(images: Path) -> None:
    path = images / "h100-ubuntu2404/image.yml"
    replace(path, "version: 550.144.03             #", "version: 550.144.02             #")
    code, text = run(str(path.parent))
    assert code == 2
    one = lint(path.parent)["FM1"]
    assert "550.144.02" in one.what and "550.144.03" in one.what
    line = path.read_text().splitlines().index(next(x for x in path.read_text().splitlines() if "550.144.02" in x)) + 1
    assert one.where == f"{path}:{line}, stack.fabricmanager.version"
    assert "FAIL    FM1" in text and "NVIDIA/gpu-operator#544" in text


def test_a_proprietary_module_for_blackwell(images: Path) -> None:
    path = images / "b200-ubuntu2404/image.yml"
    replace(path, "flavor: open", "flavor: proprietary")
    assert run(str(path.parent))[0] == 2
    assert lint(path.parent)["OK1"].where.startswith(f"{path}:")


def test_places_are_where_the_layer_has_them(images: Path) -> None:
    replace(images / "h200-ubuntu2404/image.yml", "version: 580.105.08             #", "version: 580.95.05      #")
    common = images / "common/ubuntu2404/image.yml"
    replace(common, "    - linux-headers-6.8.0-90-generic          # DKMS", "    #")
    found = lint(images / "b200-ubuntu2404")
    assert found["FM1"].where.startswith(f"{images / 'h200-ubuntu2404/image.yml'}:")
    assert found["K3"].where.startswith(f"{common}:")


def test_without_nvlsm(images: Path) -> None:
    path = images / "b200-ubuntu2404/image.yml"
    data = yaml.safe_load(path.read_text())
    del data["stack"]["nvlsm"]
    path.write_text(yaml.safe_dump(data))
    assert list(lint(path.parent)) == ["FM3"]


def test_json(images: Path) -> None:
    code, text = run(str(images / "h100-ubuntu2404"), "--format", "json")
    told = json.loads(text)
    assert code == told["exit_code"] == 1
    assert {key: told[key] for key in ("schema", "severity", "lock")} == {
        "schema": 1, "severity": "WARN", "lock": "none",
    }  # fmt: skip
    assert [set(one) for one in told["problems"]] == [{"id", "severity", "where", "what", "source", "remedy"}]


def write_lock(directory: Path, **packages: tuple[str, str | None, str]) -> None:
    """A lock that was made of this image.yml, with these packages."""
    image = read_image(directory)
    roles = roles_of(image.roles, PROJECT, "")
    named = {name.replace("_", "-"): one for name, one in packages.items()}
    lock = lock_of({**named}, kernel=image.kernel.release if image.kernel else None)
    made = lock.model_copy(update={"image": image.name, "image_digest": image_digest(image, roles)})
    (directory / "image.lock").write_text(made.to_text())


def test_versions_are_the_locks(images: Path) -> None:
    """image.yml pins the fabric manager's set as a whole; the lock got another package of it."""
    path = images / "h200-ubuntu2404"
    replace(path / "image.yml", "    version: 580.105.08             #", "    #")
    assert lint(path)["V1"].severity is Severity.UNKNOWN
    kernel: dict[str, Any] = {
        f"linux_{part}_6.8.0_90_generic": ("6.8.0-90.91", "kernel", "base") for part in ("image", "headers")
    }
    write_lock(path, nvidia_fabricmanager=("580.95.05-1", "fabricmanager", "cuda"), **kernel)
    report = lint_image(PROJECT, path)
    assert report.lock == "used"
    (one,) = (problem for problem in report.problems if problem.id == "FM1")
    assert one.where == f"{path / 'image.lock'}, packages.nvidia-fabricmanager" and "580.95.05" in one.what


def test_a_stale_lock_is_told_and_not_used(images: Path) -> None:
    path = images / "h200-ubuntu2404"
    write_lock(path, nvidia_fabricmanager=("580.95.05-1", "fabricmanager", "cuda"))
    replace(path / "image.yml", "version: 13.0.2", "version: 13.0.1")
    assert {name: one.severity.name for name, one in lint(path).items()} == {"L1": "WARN"}
    for content in ("{", "", "null", json.dumps({"schema": 1})):
        (path / "image.lock").write_text(content)
        assert list(lint(path)) == ["L1"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("nope", None, "no image here"),
        ("broken", "schema: [1\n", "not valid YAML"),
        ("broken", "\0", "not valid YAML"),
        ("broken", "- 1\n", "image.yml"),
        ("broken", "", "is missing"),
        ("broken", "extends: ../nowhere\n", "there is no"),
        ("broken", "extends: ../h200-ubuntu2404\nname: broken\nstak: {}\n", "did you mean stack"),
        ("broken", "extends: ../h200-ubuntu2404\nname: broken\nroles: [bas]\n", "did you mean base"),
        ("broken", "extends: ../h200-ubuntu2404\nname: broken\nstack: {driver: {version: 580.*}}\n", "no wildcard"),
    ],
)
def test_mistakes_are_errors(images: Path, name: str, content: str | None, says: str) -> None:
    if content is not None:
        (images / name).mkdir()
        (images / name / "image.yml").write_text(content)
    code, text = run(str(images / name))
    assert code == 4 and says in text, text


def test_which_image() -> None:
    assert run()[0] == 4
    assert run("--rules", "--format", "json")[0] == 4


def test_every_rule_is_listed() -> None:
    code, text = run("--rules")
    assert code == 0
    rules = every_rule(PROJECT)
    for one in rules:
        assert re.search(rf"^(WARN|FAIL|UNKNOWN) +{one.id} ", text, re.MULTILINE), one.id
    assert len({one.id for one in rules}) == len(rules)


def test_what_a_terminal_would_obey_is_not_passed_on(images: Path) -> None:
    path = images / "h200-ubuntu2404"
    (path / "image.yml").write_text((path / "image.yml").read_text() + '\nvariables: {nccl_config: {"A\\e[31m": 1}}\n')
    report = lint_image(PROJECT, path)
    assert report.severity is Severity.FAIL
    assert "\x1b[31m1" not in report_text(report) and "A�[31m" in report_text(report)


def test_a_roles_own_mistake_names_its_file(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from roles.nccl import lint as nccl

    monkeypatch.setattr(nccl, "lint", lambda image, lock: [1])
    with pytest.raises(GoldsmithError, match=r"yields 1") as raised:
        lint(images / "h200-ubuntu2404")
    assert raised.value.where.endswith("roles/nccl/lint.py")
    monkeypatch.setattr(nccl, "lint", lambda image, lock: 1 / 0)
    with pytest.raises(GoldsmithError, match="ZeroDivisionError"):
        lint(images / "h200-ubuntu2404")
    monkeypatch.setattr(nccl, "RULES", [])
    with pytest.raises(GoldsmithError, match="RULES"):
        every_rule(PROJECT)


def test_a_rule_or_fact_that_nobody_verified_warns() -> None:
    facts = packaged_facts()
    hearsay, known = facts.gpu_min_driver["A100"], facts.gpu_min_driver["B200"]
    assert not hearsay.verified and known.verified
    rule = Rule("X1", Severity.FAIL, "text", "source", "remedy")
    guess = Rule("X2", Severity.FAIL, "text", "source", "remedy", verified=False)
    assert severity_of(rule.hit("what", facts=(known,))) is Severity.FAIL
    assert severity_of(rule.hit("what", facts=(known, hearsay))) is Severity.WARN
    assert severity_of(guess.hit("what")) is Severity.WARN
    # UNKNOWN stays: it says no more than that
    assert severity_of(rule.hit("what", facts=(hearsay,), severity=Severity.UNKNOWN)) is Severity.UNKNOWN


def test_every_fact_has_its_source_and_date() -> None:
    facts = packaged_facts()
    tables = {name: getattr(facts, name) for name in Facts.model_fields if name not in ("schema_", "as_of")}
    assert sum(len(table) for table in tables.values()) > 100
    for name, table in tables.items():
        for key, entry in table.items():
            assert entry.source and entry.as_of.year >= 2026 and entry.verified in (True, False), (name, key)


@pytest.mark.parametrize("missing", ["source", "as_of", "verified"])
def test_a_fact_without_its_source_is_refused(tmp_path: Path, missing: str) -> None:
    from goldsmith.yamlfile import read_yaml

    data = yaml.safe_load(FILE.read_text())
    del data["torch"][missing]
    path = tmp_path / "facts.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(GoldsmithError, match="is missing"):
        read_yaml(path, Facts)


def test_patterns_of_facts_compile() -> None:
    facts = packaged_facts()
    for one in (*facts.moving_kernels.values(), *facts.owned_together.values()):
        re.compile(one.pattern)
    for pair in facts.kernel_pairs.values():
        re.compile(pair.kernel)


def test_the_engine_knows_no_role_by_name() -> None:
    folder = Path(engine.__file__).parent
    for path in folder.rglob("*.py"):
        assert not re.search(r"nccl_config|nvidia_driver_|roles\.[a-z]+ ", path.read_text()), path


def test_lab_is_fine(tmp_path: Path) -> None:
    (tmp_path / "roles").symlink_to(PROJECT / "roles")
    shutil.copytree(IMAGES / "lab", tmp_path / "images/lab", ignore=shutil.ignore_patterns("image.lock"))
    assert lint(tmp_path / "images/lab") == {}


def test_the_cases_lock_is_one() -> None:
    assert lock_of(LOCKED).package("dkms").repository == "base"
