from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from goldsmith.credentials import hide, short
from goldsmith.errors import GoldsmithError
from goldsmith.yamlfile import Places, load_yaml, read_lines, read_yaml


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    version: str
    packages: list[str] = []


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    families: dict[str, Inner] = {}


GOOD = """\
name: lab
families:
  nccl:
    # a comment
    version: 2.22.3
    packages: [libnccl2]
  cuda:
    version: "12.4"
    packages:
      - libcudart12
      - libcublas12
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.yml"
    path.write_text(text)
    return path


def test_reads_a_good_file(tmp_path: Path) -> None:
    outer = read_yaml(written(tmp_path, GOOD), Outer)
    assert outer.families["nccl"].version == "2.22.3"


def test_places_name_line_and_field(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    places = Places(path, read_lines(path)[1])
    assert places.of("families", "nccl", "version") == f"{path}:5, families.nccl.version"
    assert places.of("families", "cuda", "packages", 1) == f"{path}:11, families.cuda.packages.1"
    # a field that isn't there: its nearest parent's line
    assert places.of("families", "nccl", "versions", "x") == f"{path}:3, families.nccl.versions.x"
    assert places.of() == f"{path}:1, the file"


@pytest.mark.parametrize(
    ("text", "line", "what", "hint"),
    [
        (GOOD.replace("version: 2.22.3", "versoin: 2.22.3"), 5, "no such field", "did you mean version"),
        (GOOD.replace("families:", "famlies:"), 2, "no such field", "did you mean families"),
        (GOOD.replace("    version: 2.22.3\n", ""), 3, "is missing", ""),
        (GOOD.replace("2.22.3", "12.10"), 5, "string", "put it in quotes"),
        (GOOD + "name: twice\n", 12, "for the second time", ""),
        ("name: [\n", 2, "not valid YAML", ""),
        ("", 1, "is missing", ""),
        (GOOD.replace("2.22.3", "[1]"), 5, "string", ""),
    ],
)
def test_errors_name_the_line_and_the_remedy(tmp_path: Path, text: str, line: int, what: str, hint: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(GoldsmithError) as caught:
        read_yaml(path, Outer)
    assert caught.value.where.startswith(f"{path}:{line}")
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(GoldsmithError, match="can't be read"):
        read_yaml(tmp_path / "none.yml", Outer)
    with pytest.raises(GoldsmithError, match="can't be read"):
        read_lines(tmp_path / "none.yml")


def test_the_real_models_are_explained(tmp_path: Path) -> None:
    from goldsmith.model.image import Image

    text = "schema: 1\nname: x\nroles: []\nbase:\n  distribution: debian\n  release: trixie\n  suites: [trixie]\n"
    families = "  packages: [bash]\nfamilies:\n  nccl:\n    package: [libnccl2]\n    version: 1.0\n"
    with pytest.raises(GoldsmithError) as caught:
        read_yaml(written(tmp_path, text + families), Image)
    assert "families.nccl.package" in caught.value.where and "did you mean packages" in caught.value.hint


MINE = b"name: lab\n"
BOMB = "\n".join(
    ["a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]"]
    + [f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (b"x: 2025-13-45", 2, "looks like YAML's timestamp"),
        (b"x: 2025-01-01 00:00:00 +99:99", 2, "timestamp"),
        (b"x: 0001-01-01 00:00:00 +23:00\ny: 0000-01-01", 3, "timestamp"),
        (b"x: 0b_", 2, "looks like YAML's int"),
        (b"x: 0x_", 2, "int"),
        (b"x: " + b"9" * 5000, 2, "int"),
        (b"x: 0x" + b"f" * 5000, 2, "int"),
        (b"x: [!!int abc]", 2, "int"),
        (b"x: !!float abc", 2, "float"),
        (b"x: !!bool abc", 2, "bool"),
        (b"x: !!timestamp x", 2, "timestamp"),
        (b"x: !!binary \xc3\xa9", 2, "not valid YAML"),
        (b"x: !!int [1]", 2, "not valid YAML"),
        (b"x: !!timestamp {}", 2, "not valid YAML"),
        (b'x: "\\ud800"', 2, "a character that isn't one"),
        (b'x: "\\U00110000"', 2, "not valid YAML"),
        (b'x: "\\Uffffffff"', 2, "not valid YAML"),
        (b"x: \xff\xfe", 2, "isn't UTF-8"),
        (b"x: \x00", 2, "not valid YAML"),
        (b"x: &a {y: *a}", 2, "holds itself"),
        (b"x: &a [*a]", 2, "holds itself"),
        (b"x: " + b"[" * 70 + b"]" * 70, 2, "deep"),
        (b"x: " + b"[" * 5000, 2, "nested too deeply"),
        (b"? [a]\n: x", 2, "can't be a key"),
        (b"? {a: 1}\n: x", 2, "can't be a key"),
        (b"x: &x {y: 1}\nz:\n  <<: *x", 4, "merge keys (<<) aren't read"),
        (b"x: [{a: 1, a: 2}]", 2, "for the second time"),
        (b"1: x\n0x1: x", 3, "for the second time"),
        (b"x: !!nothing y", 2, "not valid YAML"),
        (b"x: y\n--- z", 3, "not valid YAML"),
        (BOMB.encode(), 2, "aliases"),
        (b"x: &x " + b"y" * 1000 + b"\nz: [" + b"*x, " * 1000 + b"]", 2, "aliases"),
    ],
)  # fmt: skip
def test_what_isnt_yaml_says_where(tmp_path: Path, text: bytes, line: int, what: str) -> None:
    path = tmp_path / "x.yml"
    path.write_bytes(MINE + text)
    for read in (load_yaml, read_lines):
        with pytest.raises(GoldsmithError) as caught:
            read(path)
        assert what in caught.value.what and len(str(caught.value)) < 500, caught.value
        # how deep Python got isn't a line
        assert caught.value.where in (f"{path}:{line}", str(path) if "too deeply" in what else "") or "alias" in what


def test_aliases_that_do_no_harm(tmp_path: Path) -> None:
    path = written(tmp_path, "name: &n lab\nfamilies:\n  a: &a {version: '1', packages: [*n]}\n  b: *a\n=: =\n")
    data, lines = read_lines(path)
    assert data["families"]["b"] == {"version": "1", "packages": ["lab"]} and data["="] == "="
    # an alias stands where what it leads to stands
    assert lines[("families", "b")][1] == 4 and lines[("families", "b", "version")][1] == 3


@pytest.mark.parametrize(
    "value",
    ["https://bob:SECRET@h/x", "bob:SECRET@host/x", "http:/bob:SECRET@h", "'http://bob:p SECRET@h'", "h/?token=SECRET"],
)
@pytest.mark.parametrize("field", ["version: [{}]", "packages: {}", "packages: [[], {}]", "{}: 1"])
def test_no_value_that_may_hold_a_secret_is_shown(tmp_path: Path, field: str, value: str) -> None:
    text = f"name: x\nfamilies:\n  a:\n    version: '1'\n    {field.format(value)}\n"
    with pytest.raises(GoldsmithError) as caught:
        read_yaml(written(tmp_path, text.replace("    version: '1'\n    version", "    version")), Outer)
    assert "SECRET" not in str(caught.value)


def test_a_field_named_like_a_secret_shows_no_value(tmp_path: Path) -> None:
    class Login(BaseModel):
        password: int
        size: int

    for name, shown in (("password", False), ("size", True)):
        with pytest.raises(GoldsmithError) as caught:
            read_yaml(written(tmp_path, "password: 1\nsize: 1\n".replace(f"{name}: 1", f"{name}: hunter2")), Login)
        assert ("hunter2" in str(caught.value)) is shown


@pytest.mark.parametrize(
    "text",
    [
        "fetch https://me:SECRET@host/simple/", "http://bob:p@SECRET@host/x", "http://bob:p/SECRET@host",
        "http:/bob:SECRET@host", "bob:SECRET@host/x", "http://host/?token=SECRET", "http://host/x#SECRET",
        "torch @ https://bob:p@SECRET@host/x.whl", "http://bob:p SECRET@host/x", "http://host/?u=a@b&token=SECRET",
        "http://bob:p?SECRET@host", "http://bob:p#SECRET@host", "http://SECRET@host", "host/?token=SECRET",
        "(https://a:SECRET@h/x,https://c:SECRET@h)", "`https://me:SECRET@h:80/`\nhttps://me:SECRET@h", "git+ssh://x:SECRET@h",
        "http:\\\\bob:SECRET@host",
    ],
)  # fmt: skip
def test_credentials_are_hidden(text: str) -> None:
    assert "SECRET" not in hide(text) and "SECRET" not in short(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:8080/x, then mail me@x", "https://[::1]:80/x", "is it there? yes=no", "torch==2.6.0",
        "images/lab/image.yml:12, stack.nccl", "file:///srv/apt/", "a: b @ c",
    ],
)  # fmt: skip
def test_what_is_no_credential_is_shown(text: str) -> None:
    assert hide(text) == text


def test_a_text_of_others_is_cut_and_harmless() -> None:
    assert len(short("x" * 5000)) == 200 and "\x1b" not in short("\x1b[2J") and "\n" not in short("a\nb")
