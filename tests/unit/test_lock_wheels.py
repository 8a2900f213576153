"""Requirements to exact wheels, by the real uv over a package index of files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.lock import uv
from goldsmith.lock.wheels import Offer, parse_chosen, pick, require_python
from goldsmith.model.stack import Environment

from .wheels_fake import PLACES, index, resolved, stack, wheel

NCCL = "nvidia-nccl-cu12"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv")


@pytest.fixture(autouse=True)
def offline() -> Iterator[None]:
    """No other index than the tests' own is asked, whatever this machine is set to."""
    patch = pytest.MonkeyPatch()
    patch.setenv("UV_NO_CONFIG", "1")
    patch.setenv("UV_NO_INDEX", "")
    patch.setenv("UV_DEFAULT_INDEX", "file:///nonexistent/simple")
    yield
    patch.undo()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return index(tmp_path / "simple", stack(tmp_path / "wheels"))


def test_the_very_file_that_python_and_platform_take(address: str, cache: Path) -> None:
    made = resolved(address, cache, "torch==2.6.0")
    assert {one.name: (one.filename, one.why) for one in made.wheels.values()} == {
        "torch": ("torch-2.6.0-cp313-cp313-manylinux1_x86_64.whl", "required"),
        NCCL: ("nvidia_nccl_cu12-2.21.5-py3-none-manylinux2014_x86_64.whl", "needed by torch"),
        "numpy": ("numpy-2.2.4-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "needed by torch"),
    }
    assert all(one.size > 0 for one in made.wheels.values())
    assert (made.platform, made.index) == ("manylinux_2_40_x86_64", address)


def test_the_same_twice_and_what_is_locked_stays(address: str, cache: Path) -> None:
    old = resolved(address, cache, "torch", "numpy<2.2")
    assert old.wheels["numpy"].version == "2.1.0"
    assert resolved(address, cache, "torch", "numpy<2.2") == old == resolved(address, cache, "torch", "numpy<2.2")
    assert resolved(address, cache, "torch", "numpy", previous=old) == old
    moved = resolved(address, cache, "torch", "numpy", previous=old, upgrade=["numpy", "libnccl2"])
    assert moved.wheels["numpy"].version == "2.2.4" and moved.wheels["torch"] == old.wheels["torch"]
    assert resolved(address, cache, "torch", "numpy", previous=old, upgrade=None) == moved


def test_a_build_that_was_added_later_doesnt_move_a_lock(address: str, cache: Path, tmp_path: Path) -> None:
    old = resolved(address, cache, "numpy==2.1.0")
    wheels = [
        *stack(tmp_path / "wheels"),
        wheel(tmp_path / "wheels", "numpy", "2.1.0", "cp313-cp313-manylinux1_x86_64"),
    ]
    index(tmp_path / "simple", wheels)
    assert resolved(address, cache, "numpy==2.1.0", previous=old) == old
    assert resolved(address, cache, "numpy==2.1.0", upgrade=None) != old


def test_a_file_that_the_index_changed_is_refused(address: str, cache: Path, tmp_path: Path) -> None:
    old = resolved(address, cache, "numpy==2.1.0")
    changed = wheel(tmp_path / "wheels", "numpy", "2.1.0", files={"numpy/evil.py": "evil = True\n"})
    index(tmp_path / "simple", [changed])
    with pytest.raises(GoldsmithError, match=r"numpy-2.1.0-py3-none-any.whl isn't the file that was locked"):
        resolved(address, cache, "numpy==2.1.0", previous=old)
    assert resolved(address, cache, "numpy==2.1.0", previous=old, upgrade=["numpy"]) != old


@pytest.mark.parametrize(
    ("requirement", "line", "said", "hint"),
    [
        ("numpy==2.2.9", 11, "there is no numpy 2.2.9", "next lower 2.2.4"),
        ("nunpy", 11, "no index has a project nunpy", "spelt"),
        (f"{NCCL}==2.20", 10, "can't be met together|there is no", ""),
        ("onlysource", 11, "onlysource 1.0 has no wheel|no index has a project", ""),
        ("git+https://me:secret@host/x", 11, "git\\+https://host/x is an address", "build a wheel"),
        ("x @ https://me:secret@host/x-1-py3-none-any.whl", 11, "is an address", "build a wheel"),
        ("some/folder", 11, "a path", "build a wheel"),
        ("x.whl", 11, "a path", "build a wheel"),
        ("numpy --hash=sha256:00", 11, "not a requirement", "hashes"),
    ],
)
def test_what_cant_be_says_which_line(
    requirement: str, line: int, said: str, hint: str, address: str, cache: Path
) -> None:  # fmt: skip
    with pytest.raises(GoldsmithError, match=said) as caught:
        resolved(address, cache, "torch==2.6.0", requirement)
    assert f"image.yml:{line}, python.train.requirements" in str(caught.value)
    assert "secret" not in str(caught.value) and hint in caught.value.hint


def test_a_version_that_was_taken_back(cache: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    taken = wheel(tmp_path / "w", "numpy", "1.0")
    address = index(tmp_path / "simple", [taken], yanked=[taken.name])
    with pytest.raises(GoldsmithError, match="taken back by its publisher"):
        resolved(address, cache, "numpy>0.5")
    assert resolved(address, cache, "numpy==1.0").wheels["numpy"].version == "1.0"
    assert "yanked" in capfd.readouterr().err


TARGET = uv.Target("3.13", "x86_64-manylinux_2_40", None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Request failed after 3 retries Failed to fetch: http://h/simple/torch/ dns error", "can't be reached"),
        ("Failed to fetch: https://h/simple/x/ HTTP status client error (401 Unauthorized)", "refuses us (401)"),
        ("Because pandas==2.2.0 has no usable wheels and you require pandas==2.2.0", "pandas 2.2.0 has no wheel"),
        ("something new", "can't be met together: something new"),
    ],
)
def test_uvs_own_words(text: str, said: str) -> None:
    assert said in uv.explain(text, TARGET, "here").what


def test_no_password_in_uvs_words() -> None:
    assert uv.no_password("fetch https://me:pw@host/simple/") == "fetch https://host/simple/"


def test_who_needs_whom() -> None:
    lines = "jinja2==3.1.6    # via -r requirements.in, torch\nMarkupSafe==3.0    # via jinja2[x], flask\nx==1\n"
    assert parse_chosen(lines) == {
        "jinja2": ("3.1.6", "required"), "markupsafe": ("3.0", "needed by flask"), "x": ("1", "required"),
    }  # fmt: skip


def test_the_most_specific_wheel() -> None:
    names = [
        "n-1-py3-none-any.whl", "n-1-cp37-abi3-manylinux_2_28_x86_64.whl", "n-1-cp313-cp313-manylinux_2_17_x86_64.whl",
        "n-1-1-cp313-cp313-manylinux_2_17_x86_64.whl", "n-1-cp313-cp313-manylinux_2_99_x86_64.whl",
        "n-1-cp313-cp313t-manylinux_2_28_x86_64.whl",
    ]  # fmt: skip
    order = []
    offers = [Offer("n", "1", name, "file:///x", "0" * 64, 1) for name in names]
    while best := pick(offers, "3.13", "manylinux_2_40_x86_64"):
        order.append(best.filename)
        offers.remove(best)
    assert order == [names[3], names[2], names[1], names[0]]


def test_the_images_own_python() -> None:
    environment = Environment(python="3.13", requirements=["x"])
    require_python("train", environment, "3.13.5-1", PLACES)
    for version, said in (("3.12.3-0ubuntu2", "the image has 3.12"), (None, "no python3")):
        with pytest.raises(GoldsmithError, match=said):
            require_python("train", environment, version, PLACES)
