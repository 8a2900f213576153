"""What users of other tools reported, planted as they told it, with the real apt and dpkg in real root file systems.

One test a complaint. Each shows first that the plain way fails as told, so that none passes by doing nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.lock_debs import Repository, needs_apt

from .stubs import Workshop, container, copy_tree, cuda_driver, deb, driver, fabricmanager, pinning

pytestmark = needs_apt
OLD, NEW, PATCH = "535.161.08", "550.163.01", "550.200.00"
COMPUTE, COMMON, UTILS = "libnvidia-compute-550", "libnvidia-common-550", "nvidia-utils-550"
MANAGER = "nvidia-fabricmanager-550"
STACK = {
    "driver": {"version": NEW, "packages": ["nvidia-driver-550-open"]},
    "fabricmanager": {"version": NEW, "packages": [MANAGER]},
    "imex": {"version": NEW, "packages": ["nvidia-imex-550"]},
}
IMEX = deb("nvidia-imex-550", f"{NEW}-1", "nvidia-imex-550")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    root = tmp_path_factory.mktemp("complaints")
    shop = Workshop(root, Repository(root))
    shop.setup()
    shop.repository.publish([*driver(NEW), fabricmanager(NEW), IMEX, *driver(OLD), fabricmanager(OLD)])
    assert shop.image("hgx", STACK).returncode == 0
    old = {"driver": {"version": OLD, "packages": ["nvidia-driver-535-open"]},
           "fabricmanager": {"version": OLD, "packages": ["nvidia-fabricmanager-535"]}}  # fmt: skip
    assert shop.image("hgx-old", old).returncode == 0
    yield shop
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def converged(shop: Workshop) -> Path:
    """A tree as image hgx promises. Tests copy it."""
    tree = shop.tree("hgx", "hgx")
    assert "error" not in shop.converge("hgx", tree)
    assert shop.converge("hgx", tree)["count"] == 0
    return tree


@pytest.fixture
def tree(shop: Workshop, converged: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A copy of the converged tree."""
    copy = converged.parent / str(request.node.name)
    copy_tree(converged, copy)
    yield copy
    shutil.rmtree(copy)


def without_goldsmith(shop: Workshop, tree: Path) -> None:
    """As if packages had been installed and nothing pinned or held."""
    shop.run(tree, "rm /etc/apt/preferences.d/00-goldsmith; apt-mark showhold | xargs apt-mark unhold")


def test_c09_no_family_is_forgotten_in_a_list_of_holds(shop: Workshop, tree: Path) -> None:
    """GoogleCloudPlatform/cluster-toolkit#4657: nvidia-imex was."""
    assert shop.audit("hgx", tree) == {}
    held = shop.versions(tree, COMPUTE, COMMON, UTILS, MANAGER, "nvidia-imex-550")
    assert set(held.values()) == {f"{NEW}-0ubuntu1 held", f"{NEW}-1 held"} and len(held) == 5
    newer = deb("nvidia-imex-550", f"{PATCH}-1", "nvidia-imex-550")
    shop.repository.publish([newer])
    assert "Inst nvidia-imex-550" not in shop.apt(tree, "-s dist-upgrade")
    without_goldsmith(shop, tree)
    assert "Inst nvidia-imex-550" in shop.apt(tree, "-s dist-upgrade")


def test_c02_a_run_file_beside_the_packages(shop: Workshop, tree: Path) -> None:
    """Azure/azhpc-images#86. dpkg knows nothing of it; the files on disk tell."""
    shop.run(tree, "touch /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.465.19.01; dpkg --audit && dpkg --verify")
    severity, actual = shop.audit("hgx", tree)["nvidia_driver.one-library-version", "driver libraries"]
    assert severity == "FAIL" and actual == f"465.19.01 and {NEW}"


def test_c04_c05_another_patch_of_the_same_branch(shop: Workshop) -> None:
    """NVIDIA/gpu-operator#544, akash-network/website#632: apt has no objection, the fabric manager has."""
    shop.repository.publish([*driver(NEW), fabricmanager(PATCH)])
    skew = {"driver": STACK["driver"], "fabricmanager": {"version": PATCH, "packages": [MANAGER]}}
    assert shop.image("skew", skew).returncode == 0, "apt has no objection"
    done = shop.goldsmith("lint", "images/skew")
    assert done.returncode == 2 and PATCH in done.stdout and NEW in done.stdout, done.stdout


def test_c01_a_higher_fabric_manager_appears_in_a_repository(shop: Workshop, tree: Path) -> None:
    """aws/aws-parallelcluster#3034."""
    shop.repository.publish([*driver(NEW), fabricmanager(PATCH)])
    # neither the hold nor the pin is needed for the other to work
    assert f"Inst {MANAGER}" not in shop.apt(tree, "-s dist-upgrade")
    shop.run(tree, f"apt-mark unhold {MANAGER}")
    assert f"Inst {MANAGER}" not in shop.apt(tree, "-s dist-upgrade")
    assert shop.audit("hgx", tree)["nvidia_driver.hold", MANAGER][0] == "WARN"
    without_goldsmith(shop, tree)
    shop.apt(tree, "upgrade")
    assert shop.versions(tree, MANAGER, COMPUTE) == {MANAGER: f"{PATCH}-1", COMPUTE: f"{NEW}-0ubuntu1"}
    audit = shop.audit("hgx", tree)
    assert audit["nvidia_driver.package", MANAGER] == ("FAIL", f"{PATCH}-1")
    assert audit["nvidia_driver.pin", MANAGER][0] == "FAIL"
    # and it goes back to the lock's, no further
    done = shop.converge("hgx", tree)
    assert f"goes back, as the lock says: {MANAGER} {PATCH}-1 → {NEW}-1" in done["notes"]
    assert shop.audit("hgx", tree) == {}


def test_c03_a_pin_that_apt_does_not_follow(shop: Workshop, tree: Path) -> None:
    """Azure/azhpc-images#546: the file that pins was there, and was off."""
    shop.repository.publish([*driver(PATCH), fabricmanager(PATCH)])
    pin = f"Package: {COMMON}\\nPin: version *\\nPin-Priority: 1002\\n"
    shop.run(tree, f"printf '{pin}' > /etc/apt/preferences.d/99-stray")
    assert shop.audit("hgx", tree) == {}, "one that comes after ours decides nothing"
    shop.run(tree, f"printf '{pin}' > /etc/apt/preferences")
    assert "nvidia_driver.pin" in {check for check, _ in shop.audit("hgx", tree)}
    shop.run(tree, f"apt-mark unhold {COMMON} {COMPUTE} {UTILS} nvidia-driver-550-open")
    assert PATCH in shop.apt(tree, f"-s install {COMMON}", check=False)


def test_c06_a_hold_that_covers_the_wrong_packages(shop: Workshop, tree: Path) -> None:
    """lyulyul/shine-cluster#30, #50: libnvidia-common moved although the driver was held."""
    source = "nvidia-graphics-drivers-550"
    extra = "libnvidia-extra-550"
    shop.repository.publish([*driver(NEW), deb(extra, f"{NEW}-0ubuntu1", source)])
    without_goldsmith(shop, tree)
    shop.apt(tree, f"install {extra}")
    shop.run(tree, f"apt-mark hold {COMPUTE} {COMMON} {UTILS} nvidia-driver-550-open")
    shop.repository.publish([*driver(PATCH), deb(extra, f"{PATCH}-0ubuntu1", source)])
    assert f"Inst {extra}" in shop.apt(tree, "-s upgrade")
    audit = shop.audit("hgx", tree)
    assert audit["nvidia_driver.stray-package", extra] == ("WARN", f"{NEW}-0ubuntu1")
    assert audit["nvidia_driver.hold", extra][0] == "WARN"
    shop.apt(tree, "upgrade")
    assert shop.audit("hgx", tree)["nvidia_driver.stray-package", extra] == (
        "FAIL", f"{PATCH}-0ubuntu1: half a family",
    )  # fmt: skip
    assert "error" not in shop.converge("hgx", tree)
    assert shop.versions(tree, extra) == {extra: f"{PATCH}-0ubuntu1 held"}
    assert shop.converge("hgx", tree)["count"] == 0


def test_c12_c15_another_branch_and_back(shop: Workshop, tree: Path) -> None:
    """NVIDIA/deepops#1123 (held broken packages when the branch changes), Azure/azhpc-images#334 (back to 535)."""
    shop.repository.publish([*driver(OLD), fabricmanager(OLD)])
    said = shop.apt(tree, "install nvidia-driver-535-open", check=False)
    assert "held" in said.lower(), said
    done = shop.converge("hgx-old", tree)
    assert any(COMPUTE in line and "replaced" in line for line in done["notes"]), done
    there = shop.versions(tree)
    assert there["libnvidia-compute-535"] == f"{OLD}-0ubuntu1 held" and COMPUTE not in there
    assert shop.converge("hgx-old", tree)["count"] == 0
    done = shop.converge("hgx", tree)
    assert "error" not in done and shop.versions(tree)[COMPUTE] == f"{NEW}-0ubuntu1 held"
    # what no lock has put there is never replaced
    shop.run(tree, "echo > /var/lib/goldsmith/families")
    done = shop.converge("hgx-old", tree)
    assert "nothing was changed" in done["error"] and COMPUTE in done["error"]
    assert shop.versions(tree)[COMPUTE] == f"{NEW}-0ubuntu1 held"


@pytest.fixture(scope="module")
def pinned(shop: Workshop) -> None:
    shop.repository.publish([*cuda_driver("580.95.05"), pinning("580.95.05")])
    names = ["nvidia-driver-pinning-580.95.05", "nvidia-open"]
    stack = {"driver": {"version": "580.95.05", "packages": names}}
    assert shop.image("cuda", stack).returncode == 0
    shop.repository.publish([*cuda_driver("580.95.05"), pinning("580.95.05"), *cuda_driver("610.57.04")])


@pytest.mark.usefixtures("pinned")
def test_c10_c16_the_repository_went_on(shop: Workshop) -> None:
    """NVIDIA/NemoClaw#8197, #8207; aws/aws-parallelcluster-cookbook#3238."""
    tree = shop.tree("cuda", "cuda")
    both = "-s install nvidia-driver-pinning-580.95.05 nvidia-open=580.95.05-1"
    assert "libcuda1 (610.57.04-1" in shop.apt(tree, both), "the metapackage alone is of the version asked for"
    assert "nvidia-open (610.57.04-1" in shop.apt(tree, "-s install nvidia-open")
    assert "error" not in shop.converge("cuda", tree)
    log = shop.run(tree, "cat /var/log/apt/history.log").out.split("Start-Date")[1:]
    [apart] = [number for number, one in enumerate(log) if "nvidia-driver-pinning" in one]
    [rest] = [number for number, one in enumerate(log) if "libcuda1" in one]
    assert apart < rest, "what pins comes in a transaction of its own before"
    assert shop.audit("cuda", tree) == {}
    assert "610.57.04" not in shop.apt(tree, "-s dist-upgrade")


@pytest.mark.usefixtures("pinned")
def test_c17_nobody_lists_twenty_libraries(shop: Workshop) -> None:
    """dsx-ai-factory/infra-controller#6149: image.yml names the metapackage, the lock and the holds have them all."""
    tree = shop.tree("cuda", "c17")
    shop.converge("cuda", tree)
    held = {name for name, version in shop.versions(tree).items() if version.endswith(" held")}
    assert held == {"nvidia-open", "libnvidia-ml1", "libcuda1", "nvidia-kernel-open-dkms",
                    "nvidia-driver-pinning-580.95.05"}  # fmt: skip


def test_c18_what_needs_a_held_package_to_move(shop: Workshop) -> None:
    """vanzod/ccslurm4ai#5: enroot needs another libnvidia-container1 than the held one."""
    enroot = deb("enroot", "3.5.0-1", depends="libnvidia-container-tools (>= 1.14.4)")
    shop.repository.publish(container("1.14.3"))
    toolkit = {"version": "1.14.3", "packages": ["libnvidia-container-tools"]}
    assert shop.image("toolkit", {"container_toolkit": toolkit}).returncode == 0
    tree = shop.tree("toolkit", "toolkit")
    assert "error" not in shop.converge("toolkit", tree)
    assert shop.versions(tree)["libnvidia-container1"] == "1.14.3-1 held", "no role promises this family"
    shop.repository.publish([*container("1.14.4"), enroot])
    said = shop.apt(tree, "install enroot", check=False)
    assert "held" in said.lower() and "enroot" not in shop.versions(tree), said
    newer = {"version": "1.14.4", "packages": ["libnvidia-container-tools", "enroot"], "versions": {"enroot": "3.5.0"}}
    assert shop.image("toolkit", {"container_toolkit": newer}).returncode == 0
    assert "error" not in shop.converge("toolkit", tree)
    assert shop.versions(tree, "enroot", "libnvidia-container1") == {
        "enroot": "3.5.0-1 held", "libnvidia-container1": "1.14.4-1 held",
    }  # fmt: skip
    assert shop.audit("toolkit", tree) == {}


@pytest.mark.parametrize(("script", "sign"), [("preinst", "half-installed"), ("postinst", "half-configured")])
def test_a_power_cut_in_the_transaction(shop: Workshop, script: str, sign: str) -> None:
    """SIGKILL of all at once, dpkg in the middle of a package; the next deploy ends what was begun."""
    slow = b"#!/bin/sh\n[ ! -e /etc/slow ] || sleep 120\n"
    name = f"libnvidia-{script}"
    stack = {"driver": {"version": "1.0", "packages": [name, "libnvidia-waits"]}}
    shop.repository.publish([
        deb(name, "1.0-1", "slow", files={f"DEBIAN/{script}": slow, f"/usr/share/{name}": b"x" * 1000}),
        deb("libnvidia-waits", "1.0-1", "slow", name),
    ])  # fmt: skip
    assert shop.image(script, stack).returncode == 0
    tree = shop.tree(script, script)
    shop.run(tree, "touch /etc/slow")
    shop.kill_in_the_middle(script, tree, name, sign)
    shop.run(tree, "rm /etc/slow")
    assert ("nvidia_driver.package", name) in shop.audit(script, tree)
    done = shop.converge(script, tree)
    assert "error" not in done and done["count"]
    assert shop.versions(tree, name, "libnvidia-waits") == {name: "1.0-1 held", "libnvidia-waits": "1.0-1 held"}
    assert shop.converge(script, tree)["count"] == 0
    assert shop.audit(script, tree) == {}
