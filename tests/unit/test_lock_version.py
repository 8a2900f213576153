from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldsmith.lock.version import matches, sort_key

VERSIONS = st.from_regex(r"\A([0-9]:)?[0-9][a-z0-9.+~]{0,8}(-[a-z0-9.+~]{1,4})?\Z")


@pytest.mark.parametrize(
    "ordered",
    [
        ["1.0~~", "1.0~rc1", "1.0~rc1+x", "1.0", "1.0+dfsg", "1.0.1", "1.1", "1.10", "1:0.1"],
        ["550.163.01-1", "550.163.01-2", "550.163.01-4~bpo13+1", "550.163.01-4", "570.133.07-1"],
        ["12.4.99-1", "12.4.127~12.4.1-2", "12.4.127-1"],
        ["1.21.3-5", "1.21.3-5+deb13u1", "1.21.3-5+deb13u2"],
    ],
)
def test_orders_as_dpkg_does(ordered: list[str]) -> None:
    shuffled = sorted(ordered, key=hash)
    assert sorted(shuffled, key=sort_key) == ordered


@pytest.mark.parametrize(("one", "other"), [("1.0", "1.0-0"), ("0:1.0", "1.0"), ("1.a", "1.a0"), ("01", "1")])
def test_written_differently_but_equal(one: str, other: str) -> None:
    assert sort_key(one) == sort_key(other)


@pytest.mark.parametrize(
    ("pin", "version"),
    [
        ("550.163.01", "550.163.01-2"),
        ("12.4.127", "12.4.127~12.4.1-2"),
        ("2.22.3", "2.22.3-1-1"),
        ("2.6.0", "2.6.0+dfsg-7"),
        ("2.6.0", "2.6.0"),
        ("1.3.1", "1:1.3.1-1"),
        ("1.21.3-5+deb13u1", "1.21.3-5+deb13u1"),  # a whole Debian version is a pin, too
    ],
)
def test_a_pin_is_satisfied(pin: str, version: str) -> None:
    assert matches(pin, version)


@pytest.mark.parametrize(
    ("pin", "version"),
    [
        ("2.6.0", "2.6.0.1-1"), ("2.6", "2.6.0-1"), ("2.6.0", "2.6.01-1"), ("550.163", "550.163.01-2"),
        ("2.22.3", "12.22.3-1"), ("1.21.3-5", "1.21.3-5+deb13u1"), ("2", "2:1.0-1"),
    ],
)  # fmt: skip
def test_a_pin_is_not_satisfied(pin: str, version: str) -> None:
    assert not matches(pin, version)


@given(VERSIONS)
def test_a_tilde_sorts_before_and_a_plus_after(version: str) -> None:
    assert sort_key(version + "~") < sort_key(version) < sort_key(version + "+a")


@given(VERSIONS, VERSIONS, VERSIONS)
def test_the_order_is_one(a: str, b: str, c: str) -> None:
    first, second, third = sorted([a, b, c], key=sort_key)
    assert sort_key(first) <= sort_key(third)
    assert (sort_key(a) < sort_key(b)) + (sort_key(b) < sort_key(a)) + (sort_key(a) == sort_key(b)) == 1
    assert sort_key(first) <= sort_key(second) <= sort_key(third)


@given(st.from_regex(r"\A[0-9]{1,2}(\.[0-9]{1,3}){1,3}\Z"), st.sampled_from(["", "+dfsg", "~rc1", "-1"]))
def test_a_pin_is_satisfied_by_what_packagers_make_of_it(pin: str, suffix: str) -> None:
    assert matches(pin, f"{pin}{suffix}-3")
    assert not matches(pin, f"{pin}.1{suffix}-3")
    assert not matches(pin, f"{pin}1{suffix}-3")
