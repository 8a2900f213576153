"""Desired against probe: what is found to differ, and what isn't."""

from collections.abc import Callable
from typing import Any

import pytest

from goldsmith import File, GoldsmithError, KernelModule, KernelParameter, Package, Sysctl, Unit
from goldsmith.compare import Difference, compare
from goldsmith.model.desired import Desired, gather
from goldsmith.model.finding import Severity
from goldsmith.model.resource import PackageFile, Resource

from .make import package, probe

NCCL_CONF = File("/etc/nccl.conf", "# ours\nNCCL_IB_TC=106\n")


def desired(*resources: Resource) -> Desired:
    return gather({"a_role": list(resources)})


def found(have: Desired, **parts: Any) -> list[Difference]:
    container = parts.pop("container", True)
    return compare(have, probe(container=container, **parts))


def file_facts(**changes: Any) -> dict[str, Any]:
    facts = {
        "type": "file", "mode": 0o644, "owner": "root", "group": "root", "size": 1, "sha256": NCCL_CONF.sha256,
        "ctime": "2026-11-30T10:00:00Z",
    }  # fmt: skip
    return {"/etc/nccl.conf": {**facts, **changes}}


def test_nothing_differs() -> None:
    have = desired(Package("libnccl2", "2.22.3-1-1", held=True), NCCL_CONF)
    assert found(have, packages={"libnccl2": package("2.22.3-1-1", held=True)}, files=file_facts()) == []


def test_other_version_names_both() -> None:
    [one] = found(desired(Package("torch", "2.6.0")), packages={"torch": package("2.5.1")})
    assert (one.kind, one.expected, one.actual) == ("packages", "2.6.0", "2.5.1")
    assert one.since == "2026-11-30T10:00:00Z"


@pytest.mark.parametrize(("status", "said"), [("iF", "half-configured"), ("iU", "unpacked"), ("iH", "half-installed")])
def test_a_broken_installation_is_no_installation(status: str, said: str) -> None:
    """dpkg leaves iF when a DKMS build fails; the version alone looks right."""
    [one] = found(desired(Package("dkms", "1")), packages={"dkms": package("1", status=status)})
    assert said in one.actual


def test_dropped_hold_is_a_warning() -> None:
    [one] = found(desired(Package("libnccl2", "1", held=True)), packages={"libnccl2": package("1")})
    assert (one.kind, one.severity) == ("holds", Severity.WARN)


def test_replaced_library_is_found_though_dpkg_is_content() -> None:
    have = desired(Package("libnccl2", "1", files={"/usr/lib/libnccl.so.2": PackageFile(100, "a" * 64)}))
    packages = {"libnccl2": package("1")}
    other = {"/usr/lib/libnccl.so.2": {"type": "file", "size": 100, "sha256": "b" * 64}}
    [one] = found(have, packages=packages, package_files=other)
    assert one.kind == "contents" and "dpkg says" in one.evidence[0]
    other["/usr/lib/libnccl.so.2"]["size"] = 99
    [one] = found(have, packages=packages, package_files=other)
    assert one.actual == "99 bytes"
    # another version has other files; that is told once, by the version
    [one] = found(have, packages={"libnccl2": package("0")}, package_files=other)
    assert one.kind == "packages"


@pytest.mark.parametrize(
    ("have", "actual"),
    [
        ({"type": "link", "target": "libnccl.so.2.22.3"}, None),
        ({"type": "link", "target": "/opt/libnccl.so.2.21.5"}, "a link to /opt/libnccl.so.2.21.5"),
        ({"type": "file", "size": 5, "sha256": "b" * 64}, "a file"),
        ({"type": "absent"}, "absent"),
    ],
)
def test_a_packages_link_that_leads_elsewhere_is_found(have: dict[str, Any], actual: str | None) -> None:
    """`cp other.so libnccl.so.2` after an rm: the library itself is untouched, and the loader takes the other."""
    link = PackageFile(0, "", "libnccl.so.2.22.3")
    wanted = desired(Package("libnccl2", "1", files={"/usr/lib/libnccl.so.2": link}))
    differences = found(wanted, packages={"libnccl2": package("1")}, package_files={"/usr/lib/libnccl.so.2": have})
    assert [one.actual for one in differences] == ([actual] if actual else [])
    assert all("a link to libnccl.so.2.22.3" in one.expected for one in differences)


def test_edited_file_shows_the_lines() -> None:
    facts = file_facts(sha256="b" * 64, text="# ours\nNCCL_IB_TC=41\nNCCL_DEBUG=INFO\n")
    [one] = found(desired(NCCL_CONF), files=facts)
    assert one.evidence == ("- NCCL_IB_TC=106", "+ NCCL_IB_TC=41", "+ NCCL_DEBUG=INFO")


def test_secrets_are_never_shown() -> None:
    facts = file_facts(sha256="b" * 64, text="# ours\nNCCL_IB_TC=106\nAPI_TOKEN=hunter2\n")
    [one] = found(desired(NCCL_CONF), files=facts)
    assert "hunter2" not in "".join(one.evidence) and "looks like a secret" in one.evidence[0]
    secret = File("/etc/nccl.conf", NCCL_CONF.content, secret=True)
    [one] = found(desired(secret), files=facts)
    assert one.evidence == ()


@pytest.mark.parametrize(
    ("change", "actual"),
    [
        ({"mode": 0o666}, "mode 0666"),
        ({"owner": "nobody"}, "owner nobody:root"),
        ({"type": "link", "target": "/x"}, "a link to /x"),
        ({"type": "absent"}, "absent"),
    ],
)
def test_file_attributes(change: dict[str, Any], actual: str) -> None:
    [one] = found(desired(NCCL_CONF), files=file_facts(**change))
    assert one.actual == actual


def test_what_was_not_read_is_unknown() -> None:
    have = desired(Package("a", "1"), NCCL_CONF, Unit("a.service", "enabled"))
    differences = found(
        have, packages="timed out after 5 s", files={"/etc/nccl.conf": {"error": "I/O error"}}, units={}
    )
    assert {one.severity for one in differences} == {Severity.UNKNOWN}
    assert len(differences) == 3
    # a probe that never sent a part back is no better
    assert {one.severity for one in found(have)} == {Severity.UNKNOWN}


def unit(load: str = "loaded", state: str = "enabled", active: str = "active", **more: Any) -> dict[str, Any]:
    return {"load": load, "state": state, "active": active, "sub": "", "result": "success", "condition": None, **more}


@pytest.mark.parametrize(
    ("want", "have", "actual"),
    [
        (Unit("a.service", "enabled"), unit(), None),
        (Unit("a.service", "enabled"), unit(state="disabled", active="inactive"), "disabled"),
        (Unit("a.service", "enabled"), unit("not-found", "", "inactive"), "there is no such unit"),
        (Unit("a.service", "masked"), unit("not-found", "", "inactive"), "not there"),
        (Unit("a.service", "masked"), unit("masked", "masked-runtime", "inactive"), "masked-runtime"),
        (Unit("a.service", "enabled"), unit(state="enabled-runtime"), "enabled-runtime"),
        (Unit("a.service", "enabled"), unit("bad-setting"), "it can't be loaded (bad-setting)"),
        (Unit("a.service", "disabled", running=False), unit(state="disabled"), "active"),
        (Unit("a.service", "masked"), unit("masked", "masked", "inactive"), None),
        (Unit("a.service", "masked"), unit(), "enabled"),
        (Unit("a.service", "masked"), unit("masked", "masked", "active"), "masked but active"),
        (Unit("a.service", "disabled"), unit("not-found", "", "inactive"), None),
        (Unit("a.service", "disabled"), unit(state="static", active="inactive"), None),
        (Unit("a.service", "enabled"), unit(active="failed", result="exit-code"), "failed (exit-code)"),
        # gated on a GPU that isn't there: inactive because its condition isn't met, which is right
        (Unit("a.service", "enabled", running=True), unit(active="inactive", condition=False), None),
        (Unit("a.service", "enabled", running=True), unit(active="inactive"), "inactive"),
    ],
)
def test_units(want: Unit, have: dict[str, Any], actual: str | None) -> None:
    differences = found(desired(want), units={"a.service": have})
    assert [one.actual for one in differences] == ([] if actual is None else [actual])


def test_kernel_of_the_host_is_no_finding_in_a_container() -> None:
    have = desired(KernelModule("ib_umad"), Sysctl("vm.swappiness", "1"), KernelParameter("iommu=pt"))
    facts = {path: {"type": "file", "mode": 0o644, "owner": "root", "group": "root", "sha256": file.sha256}
             for path, file in have.files.items()}  # fmt: skip
    sysctls = {"vm.swappiness": {"value": "60", "writable": False}}
    assert found(have, files=facts, sysctls=sysctls) == []
    kernel = {"cmdline": ["quiet"]}
    modules = {"ib_umad": {"loaded": False, "parameters": {}}}
    told = found(have, container=False, files=facts, sysctls=sysctls, kernel=kernel, modules=modules)
    assert [one.kind for one in told] == ["modules", "sysctls", "parameters"]


def test_derived_files() -> None:
    have = desired(
        KernelModule("ib_umad"),
        KernelModule("nouveau", "blacklisted"),
        KernelModule("nvidia", "loaded", {"NVreg_x": "1"}),
        Sysctl("net.core.somaxconn", "4096"),
    )
    assert set(have.files) == {
        "/etc/modules-load.d/90-goldsmith-a_role.conf",
        "/etc/modprobe.d/90-goldsmith-a_role.conf",
        "/etc/sysctl.d/90-goldsmith-a_role.conf",
    }
    assert "install nouveau /bin/false" in have.files["/etc/modprobe.d/90-goldsmith-a_role.conf"].content
    assert "nouveau" not in have.files["/etc/modules-load.d/90-goldsmith-a_role.conf"].content


def test_two_roles_contradict() -> None:
    with pytest.raises(GoldsmithError, match="roles a and b promise different things about /etc/x"):
        gather({"a": [File("/etc/x", "1")], "b": [File("/etc/x", "2")]})
    both = gather({"a": [Package("p", "1")], "b": [Package("p", "1", held=True)]})
    assert both.packages["p"].held and both.owner["packages", "p"] == "b"


def test_what_no_role_promises_and_reloads_that_are_due() -> None:
    sysctl, pin = "/etc/sysctl.d/90-goldsmith-kernel.conf", "/etc/apt/preferences.d/90-goldsmith"
    stale = {sysctl: {"type": "file", "role": "kernel", "ctime": "2026-11-30T10:00:00Z"}, pin: {"role": ""}}
    first, second, due = found(desired(), stale_files={"stale": stale, "pending": ["grub"]})
    assert (first.kind, first.key, first.actual, first.role) == ("stale", sysctl, "still there", "kernel")
    assert first.since == "2026-11-30T10:00:00Z" and "until a reboot" in first.evidence[1]
    assert second.key == pin and len(second.evidence) == 1
    assert (due.kind, due.actual, due.severity) == ("pending", "a reload is still due: grub", Severity.FAIL)
    assert found(desired(), stale_files={"stale": {}, "pending": []}) == []
    [unread] = found(desired(), stale_files="timed out after 5 s")
    assert unread.severity is Severity.UNKNOWN


def test_each_role_has_its_own_kernel_parameters() -> None:
    have = gather({"a": [KernelParameter("iommu=pt")], "b": [KernelParameter("quiet"), KernelParameter("x=1,2")]})
    assert set(have.files) == {"/etc/default/grub.d/90-goldsmith-a.cfg", "/etc/default/grub.d/90-goldsmith-b.cfg"}
    text = have.files["/etc/default/grub.d/90-goldsmith-b.cfg"].content
    assert text.endswith('GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX quiet x=1,2"\n')


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: KernelModule("nouveau\ninstall x /bin/sh"), "nouveau"),
        (lambda: KernelModule("a b"), "a b"),
        (lambda: KernelModule("nvidia", "loaded", {"a": "1\noptions x y=1"}), "kernel module nvidia, option a"),
        (lambda: KernelModule("nvidia", "loaded", {"a\nb": "1"}), "kernel module nvidia"),
        (lambda: Sysctl("vm.x y", "1"), "vm.x y"),
        (lambda: Sysctl("vm.x\nvm.y", "1"), "vm.x"),
        (lambda: Sysctl("a.//.//.b", "1"), "a.//"),
        (lambda: Sysctl("vm.x", "1\nvm.y = 2"), "sysctl vm.x"),
        *((lambda text=text: KernelParameter(text), "kernel parameter") for text in
          ("", "a b", "a=$(id)", 'a="b"', "a='b'", "a=`id`", "a\\", "a\n")),
    ],
)  # fmt: skip
def test_what_would_break_its_file_is_refused(make: Callable[[], Resource], named: str) -> None:
    with pytest.raises(GoldsmithError) as error:
        make()
    assert named in str(error.value).replace("\\n", "\n")


def test_usual_names_are_taken() -> None:
    KernelModule("nvme-core", "loaded", {"dyndbg": "file x.c +p", "n": ""})
    Sysctl("net.ipv4.conf.eth0/100.rp_filter", "2")
    Sysctl("net/ipv4/ip_forward", "4096 87380 6291456")
    KernelParameter("pci=realloc=off,nocrs")
