"""Our order of versions is dpkg's own."""

from __future__ import annotations

import random

import pytest

from goldsmith.lock.version import sort_key
from goldsmith.process import run
from tests.unit.lock_debs import needs_apt

pytestmark = [pytest.mark.contract, needs_apt]


def test_versions_sort_as_dpkg_sorts_them() -> None:
    chosen = random.Random(7)
    fixed = ["1.0", "1.0-0", "1.0-1", "1.0~", "1.0~~", "1.0+", "1:1.0", "1.0a", "1.0.0", "1.00", "550.163.01-4~bpo13+1"]
    made = ["1" + "".join(chosen.choices("019.+~ab", k=chosen.randint(0, 5))) for _ in range(40)]
    versions = [*fixed, *(f"{one}-{chosen.choice('01ab')}" if chosen.random() < 0.4 else one for one in made)]
    for _ in range(120):
        one, other = chosen.choice(versions), chosen.choice(versions)
        less = run(["dpkg", "--compare-versions", one, "lt", other], timeout=10, what="compare", check=False)
        assert (less.code == 0) == (sort_key(one) < sort_key(other)), (one, other)
