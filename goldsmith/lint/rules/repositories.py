"""Where packages come from: one owner for what belongs together, one key and one entry for a repository."""

from __future__ import annotations

import re
from collections.abc import Iterator

from goldsmith.lint.subject import Field, Named, Subject
from goldsmith.model.finding import Severity
from goldsmith.model.image import BASE
from goldsmith.model.rule import Hit, Rule
from goldsmith.model.stack import Rdma

D1 = Rule(
    "D1", Severity.FAIL, "rdma-core and libibverbs come from one provider: the distribution or DOCA",
    "Azure/azhpc-images#546", "decide with stack.rdma.provider, and take all of it from that one's repository",
)  # fmt: skip
D2 = Rule(
    "D2", Severity.FAIL, "dkms is the distribution's, and with DOCA the firmware tools are DOCA's",
    "Azure/azhpc-images", "take it from the repository that it belongs to",
)  # fmt: skip
O1 = Rule(
    "O1", Severity.FAIL, "a set that moves together comes from one repository",
    "akash-network/website#632; NVIDIA/nvtrust#55", "set its `repository`, then lock anew",
)  # fmt: skip
O2 = Rule(
    "O2", Severity.WARN, "driver, fabric manager and imex come from one repository",
    "akash-network/website#632; NVIDIA/nvtrust#55; aws/aws-parallelcluster#3034",
    "take them from one: two publish on different days, and an exact match isn't always there",
)  # fmt: skip
A1 = Rule(
    "A1", Severity.FAIL, "a repository and suite stands once: twice, with two keys, apt refuses both",
    "NVIDIA/nvidia-docker#1631 (Conflicting values set for option Signed-By)", "leave one of them",
)  # fmt: skip
A2 = Rule(
    "A2", Severity.FAIL, "no repository is trusted by a key that its owner has retired",
    "NVIDIA/cuda-repo-management#1, #4", "name the new key's fingerprint and url",
)  # fmt: skip
SERVICES = ("fabricmanager", "imex", "nvlsm")


def lint(subject: Subject) -> Iterator[Hit]:
    yield from _rdma(subject)
    yield from _dkms_and_tools(subject)
    yield from _one_origin(subject)
    yield from _entries(subject)


def _rdma(subject: Subject) -> Iterator[Hit]:
    fact = subject.facts.owned_together["rdma"]
    members = subject.matching(fact.pattern)
    by_repository = {one.repository: one for one in members if one.repository}
    if subject.lock and len(by_repository) > 1:
        these = " and ".join(f"{one} of {repository}" for repository, one in sorted(by_repository.items()))
        first = max(by_repository.values(), key=lambda one: one.repository != BASE)
        yield D1.hit(f"{these} in one image", *first.field, package=first.package, facts=(fact,))
        return
    rdma, field = subject.image.stack.rdma, ("stack", "rdma", "provider")
    if rdma is None:
        return
    if rdma.provider == "doca" and rdma.repository in (None, BASE):
        yield D1.hit(
            "the provider is doca, and the packages come from "
            + ("whichever repository has them" if rdma.repository is None else "the distribution"), *field,
            facts=(fact,), remedy="set stack.rdma.repository to DOCA's, which is one of `repositories`",
        )  # fmt: skip
    if rdma.provider == "distribution" and rdma.repository not in (None, BASE):
        yield D1.hit(f"the provider is the distribution, and the packages come from {rdma.repository}", *field,
                     facts=(fact,))  # fmt: skip
    yield from _strays(subject, rdma)


def _strays(subject: Subject, rdma: Rdma) -> Iterator[Hit]:
    """What belongs to the other provider by its name or by where it is named."""
    fact = subject.facts.owned_together["rdma"]
    for one in subject.named.values():
        if rdma.provider == "distribution" and one.name.startswith(("doca-", "mlnx-", "ofed-")):
            yield D1.hit(f"the provider is the distribution, and {one.name} is DOCA's", *one.field, facts=(fact,))
        elif rdma.provider == "doca" and one.family != "rdma" and re.fullmatch(fact.pattern, one.name):
            yield D1.hit(f"the provider is doca, and {one.name} is named outside stack.rdma", *one.field,
                         facts=(fact,), remedy="name it in stack.rdma.packages")  # fmt: skip


def _dkms_and_tools(subject: Subject) -> Iterator[Hit]:
    dkms = subject.packages.get("dkms")
    if dkms and dkms.repository not in (None, BASE):
        yield D2.hit(f"{dkms} comes from {dkms.repository} and replaces the distribution's",
                     *dkms.field, package=dkms.package)  # fmt: skip
    rdma = subject.image.stack.rdma
    if rdma and rdma.provider == "doca" and rdma.repository:
        fact = subject.facts.owned_together["firmware tools"]
        for tool in subject.matching(fact.pattern):
            if tool.repository not in (None, rdma.repository):
                yield D2.hit(f"{tool} comes from {tool.repository}, DOCA from {rdma.repository}", *tool.field,
                             package=tool.package, facts=(fact,))  # fmt: skip


def _one_origin(subject: Subject) -> Iterator[Hit]:
    for path in subject.image.sets:
        members = [one for one in subject.packages.values() if one.locked and one.family == path[-1]]
        first: dict[str | None, Named] = {}
        for one in members:
            first.setdefault(one.repository, one)
        if len(first) > 1:
            these = " and ".join(f"{one} of {repository}" for repository, one in first.items())
            yield O1.hit(f"{path[-1]} has {these}", *path, package=list(first.values())[1].package)
    driver = _origins(subject, "driver")
    for name in SERVICES:
        own = _origins(subject, name)
        if driver and own and driver != own:
            field: Field = ("stack", name, "repository") if subject.family(name) else subject.members(name)[0].field
            yield O2.hit(f"{name} comes from {', '.join(sorted(own))}, the driver from {', '.join(sorted(driver))}",
                         *field)  # fmt: skip


def _origins(subject: Subject, name: str) -> set[str]:
    """The repositories of a well-known set, and of what is its by name wherever it stands; empty where that isn't
    known."""
    locked = {one.repository for one in subject.packages.values() if one.locked and one.family == name}
    family = subject.family(name)
    found = locked or {family.repository if family else None}
    strays = {subject.packages[one.name].repository for one in subject.members(name) if one.own}
    return {one for one in found | strays if one}


def _entries(subject: Subject) -> Iterator[Hit]:
    seen: dict[tuple[str, str], str] = {}
    for name, repository in subject.image.repositories.items():
        # apt takes http and https of one host, and a slash at the end, for other places; a person doesn't
        uri = re.sub(r"^https?://", "", repository.uri).rstrip("/")
        for index, suite in enumerate(repository.suites):
            other = seen.setdefault((uri, suite), name)
            if other != name or repository.suites.index(suite) != index:
                yield A1.hit(f"{name} and {other} are both {repository.uri} {suite}", "repositories", name, "uri")
        for fingerprint, fact in subject.facts.retired_keys.items():
            if repository.key.fingerprint == fingerprint or fact.name in (repository.key.url or ""):
                yield A2.hit(
                    f"{name} is trusted by the key {fact.name} ({fingerprint}): {fact.why}",
                    "repositories", name, "key", facts=(fact,), remedy=f"the new one is {fact.instead}",
                )  # fmt: skip
