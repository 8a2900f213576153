"""A lock is read as root: what would reach apt's configuration, a command line or a file name is refused on reading."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldsmith.errors import GoldsmithError
from goldsmith.model.lock import parse_lock
from tests.unit.make import lock as make_lock

WHEEL = {"name": "torch", "version": "2.6", "filename": "torch-2.6-py3-none-any.whl", "sha256": "0" * 64, "size": 1,
         "why": "required"}  # fmt: skip
ENVIRONMENT = {"python": "3.13", "platform": "manylinux_2_39_x86_64", "wheels": {"torch": WHEEL}}


def whole() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(make_lock({"bash": ("5.2-1", "bash", "shell")}).to_text())
    data["environments"] = {"train": ENVIRONMENT}
    data["repositories"]["cuda"] = {"uri": "https://a.invalid/x/", "fingerprint": "A" * 40, "releases": {"/": "0" * 64}}
    return data


def changed(data: Any, path: tuple[str, ...], value: Any) -> Any:
    if not path:
        return value
    return {**data, path[0]: changed(data.get(path[0]), path[1:], value)}


def test_the_lock_itself_is_read() -> None:
    parse_lock(json.dumps(whole()).encode(), "x")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("architecture",), 'amd64"; Dir::Bin::methods "/evil/'),
        (("architecture",), "../../../zz"),
        (("distribution",), "debian\n"),
        (("release",), "../x"),
        (("image",), "../x"),
        (("kernel",), "6.8; reboot"),
        (("created",), "yesterday"),
        (("pool", "suite"), "../../x"),
        (("repositories",), {}),
        (("repositories", "cuda", "uri"), "-oDir::Bin::methods=/evil"),
        (("repositories", "cuda", "uri"), "https://a.invalid/\ndeb [trusted=yes] https://b.invalid/ x main"),
        (("repositories", "cuda", "uri"), "https://me:secret@a.invalid/"),
        (("repositories", "cuda", "releases"), {"x\ny": "0" * 64}),
        (("repositories", "../x"), {"releases": {}}),
        (("packages",), {}),
        (("packages", "bash", "name"), "zsh"),
        (("packages", "bash", "version"), "5.2;reboot"),
        (("packages", "bash", "version"), "9" * 5000),
        (("packages", "bash", "filename"), "../../etc/passwd"),
        (("packages", "bash", "filename"), "/etc/passwd"),
        (("packages", "bash", "filename"), "-oDir=/evil"),
        (("packages", "bash", "architecture"), "arm64"),
        (("packages", "bash", "repository"), "nowhere"),
        (("packages", "bash", "size"), "518"),
        (("packages", "bash", "units"), ["a b.service"]),
        (("packages", "bash", "files"), {"relative": {"link": "x"}}),
        (("environments",), {"/dev/shm/x": ENVIRONMENT}),
        (("environments",), {"../../../x": ENVIRONMENT}),
        (("environments", "train", "platform"), "zzz"),
        (("environments", "train", "index"), "https://a.invalid/?token=secret"),
        (("environments", "train", "wheels"), {"/dev/shm/x": WHEEL}),
        (("environments", "train", "wheels"), {"numpy": WHEEL}),
        (("environments", "train", "wheels", "torch", "filename"), "../x.whl"),
        (("schema",), 2),
        (("unknown",), 1),
    ],
)
def test_refused(path: tuple[str, ...], value: Any) -> None:
    with pytest.raises(GoldsmithError) as caught:
        parse_lock(json.dumps(changed(whole(), path, value)).encode(), "images/x/image.lock")
    assert caught.value.where.startswith("images/x/image.lock") and len(str(caught.value)) < 700
    assert "secret" not in str(caught.value)


def test_a_packages_promise_tells_its_source() -> None:
    """By the source it is known on a node what else belongs to a family (lyulyul/shine-cluster#30)."""
    assert make_lock({"bash": ("5.2-1", "bash-source", "shell")}).packages["bash"].resource().source == "bash-source"
