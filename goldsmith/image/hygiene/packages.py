"""What apt and dpkg say of the finished tree: nothing to do, nothing half done.

Asked inside the tree, which they see read-only, with the pool as the only source; their lists lie in memory.
"""

from __future__ import annotations

from pathlib import Path

from goldsmith.converge.connectors.rootfs import POOL_INSIDE
from goldsmith.errors import GoldsmithError
from goldsmith.fleet.rootfs import run_in_tree
from goldsmith.image.hygiene.rule import finding
from goldsmith.model.finding import Finding
from goldsmith.model.lock import Lock

UPGRADE, BROKEN = "hygiene.upgrade", "hygiene.dpkg"
CHECKS = (UPGRADE, BROKEN)
_SCRIPT = Path(__file__).parent / "ask_apt.sh"
_MARK = "@goldsmith "


def ask_packages(image: str, tree: Path, lock: Lock, pool: Path) -> list[Finding]:
    """Findings about the packages of the tree. Raises GoldsmithError if apt can't be asked."""
    # a .list and not options: this is also what the package transaction reads
    source = f"deb [signed-by={POOL_INSIDE}/goldsmith.asc] copy:{POOL_INSIDE} {lock.pool.suite} main"
    command = ["/bin/sh", "-c", _SCRIPT.read_text(), "sh", source]
    what, binds = "ask apt and dpkg in the finished tree", {pool: POOL_INSIDE}
    done = run_in_tree(tree, command, timeout=300, what=what, binds=binds, check=False, read_only=True)
    answers = parse(done.out)
    if done.code != 0 or answers.get("update", (1, []))[0] != 0 or len(answers) != 4:
        raise GoldsmithError(
            f"apt can't be asked in the finished tree:\n  {done.tail}", where=f"images/{image}",
            hint="is the pool whole? `goldsmith pool verify` says which package isn't",
        )  # fmt: skip
    return judge(image, answers)


def parse(output: str) -> dict[str, tuple[int, list[str]]]:
    """Step → (exit code, lines that it printed), of what the script printed."""
    answers: dict[str, tuple[int, list[str]]] = {}
    lines: list[str] = []
    for line in output.splitlines():
        if not line.startswith(_MARK):
            lines.append(line)
            continue
        words = line.removeprefix(_MARK).split()
        if len(words) == 2 and words[1].isdigit():
            answers[words[0]] = (int(words[1]), lines)
        lines = []
    return answers


def judge(image: str, answers: dict[str, tuple[int, list[str]]]) -> list[Finding]:
    """What is wrong, of the script's answers."""
    found = []
    code, lines = answers["upgrade"]
    wanted = [line for line in lines if line.startswith(("Inst ", "Remv "))]
    kept = [line for line in lines if "not upgraded" in line and not line.rstrip(". \n").endswith(" 0 not upgraded")]
    for line in [*wanted, *kept, *([f"exit code {code}: {' '.join(lines[-3:])}"] if code else [])]:
        found.append(finding(
            image, UPGRADE, "apt-get dist-upgrade", line, "it wants nothing: the tree is the lock's",
            "what the roles install must be in the lock: `goldsmith lock` again, or look which package moved",
        ))  # fmt: skip
    for step, command in (("audit", "dpkg --audit"), ("check", "apt-get check")):
        code, lines = answers[step]
        said = [line for line in lines if line.strip()]
        if code or (step == "audit" and said):
            found.append(finding(
                image, BROKEN, command, " ".join(line.strip() for line in said[-6:]) or f"exit code {code}",
                "no package is half installed or lacks what it depends on",
                "a package's own script failed: the build's log says why",
            ))  # fmt: skip
    return found
