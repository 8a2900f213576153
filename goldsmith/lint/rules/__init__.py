"""The rules, a module a topic: its Rules, and lint(subject), which yields hits of them."""

from __future__ import annotations

from goldsmith.lint.rules import cuda, fabric, kernel, modules, repositories, torch, versions
from goldsmith.model.rule import Rule

TOPICS = (versions, cuda, torch, fabric, modules, kernel, repositories)
RULES: tuple[Rule, ...] = tuple(
    one for topic in TOPICS for one in vars(topic).values() if isinstance(one, Rule)
)  # fmt: skip
