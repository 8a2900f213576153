"""What building an image costs: cold, with a warm pool, after one role's file and after one pin changed; beside plain
mmdebstrap of the same packages. `make bench-build` runs it, as root, in a state directory of its own."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from goldsmith import process
from goldsmith.image.base import command as mmdebstrap
from goldsmith.model.image import read_image
from goldsmith.model.lock import read_lock
from goldsmith.project import find_project, state_dir

# A pin that is changed to another version that the distribution has: text in image.yml and what takes its place.
PIN = ("6.12.117", "6.12.118")
ROLE_FILE = "roles/nccl/desired.py"
SECONDS = 3600


@dataclass(frozen=True)
class Cost:
    """wall: seconds. disk: bytes that the file system had less, at most. memory: bytes of the largest process."""

    wall: float
    disk: int
    memory: int


@contextmanager
def lowest(folder: Path) -> Iterator[Callable[[], int]]:
    """While the block runs, the least room there was on the file system of `folder`; asked for by calling it."""
    found = [free(folder)]
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.2):
            found[0] = min(found[0], free(folder))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lambda: found[0]
    finally:
        done.set()
        thread.join()


def free(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def cost(folder: Path, *commands: Sequence[str | Path], env: Mapping[str, str]) -> Cost:
    """Run commands one after the other, each below a process of ours that learns how much memory its children took."""
    before, started, memory = free(folder), time.perf_counter(), 0
    with lowest(folder) as least:
        for argv in commands:
            words = [str(word) for word in (sys.executable, __file__, "--watch", folder / "memory", *argv)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **env})
            if done.returncode:
                raise SystemExit(f"{' '.join(words[4:])} ended with {done.returncode}:\n{done.stderr[-2000:]}")
            memory = max(memory, int((folder / "memory").read_text()))
        disk = before - least()
    return Cost(time.perf_counter() - started, max(0, disk), memory)


def watched(file: Path, argv: Sequence[str]) -> int:
    """Run a command; write the bytes of memory of the largest process that it started into `file`."""
    code = subprocess.run(argv).returncode
    file.write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))
    return code


def copy_project(project: Path, target: Path, image: str) -> None:
    """The checkout as it is, with the image's lock: what is edited there is nobody's."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = process.run(listing, timeout=60, what="list the project's files", cwd=project).out.split("\0")
    for name in [*filter(None, names), f"images/{image}/image.lock"]:
        if (project / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(project / name, target / name)


def plain(project: Path, image: str, state: Path, folder: Path, *, pool: bool) -> list[str]:
    """mmdebstrap's command line for all packages of the lock, into a tar.zst. pool: from there, else from a mirror."""
    definition, lock = read_image(project / "images" / image), read_lock(project / "images" / image)
    (folder / "key.asc").write_text(lock.pool.key)
    words = mmdebstrap(definition, lock, state / "pool", folder / "key.asc", folder / "plain.tar.zst")
    names = ",".join(sorted(lock.packages))
    words = [f"--include={names}" if word.startswith("--include=") else word for word in words]
    if pool:
        return words
    return [*words[:-3], f"--components={','.join(definition.base.components)}", definition.base.release, words[-2]]


def edit(path: Path, change: Callable[[str], str]) -> None:
    text = path.read_text()
    if change(text) == text:
        raise SystemExit(f"{path}: there is nothing to change; PIN and ROLE_FILE in {__file__} are of images/lab")
    path.write_text(change(text))


def table(rows: Mapping[str, Cost]) -> str:
    first = next(iter(rows.values())).wall
    lines = ["| what | wall s | ratio | peak disk GB | largest process MB |", "|---|---|---|---|---|"]
    for name, one in rows.items():
        figures = f"{one.wall:.1f} | {one.wall / first:.2f} | {one.disk / 1e9:.1f} | {one.memory / 1e6:.0f}"
        lines.append(f"| {name} | {figures} |")
    return "\n".join(lines)


def main(image: str) -> None:
    here = find_project(Path.cwd())
    real = state_dir(here)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=real))
    try:
        print(measure(here, image, real, folder))
    finally:
        process.run(["rm", "-rf", "--one-file-system", "--", folder], timeout=600, what="clear up")


def measure(here: Path, image: str, real: Path, folder: Path) -> str:
    """The table. folder: for all that is made. real: the state directory whose keys the lock names."""
    project, state = folder / "project", folder / "state"
    copy_project(here, project, image)
    state.mkdir()
    for name in ("pool-key", "signing"):
        if (real / name).is_dir():
            shutil.copytree(real / name, state / name)
    target = str(project / "images" / image)
    goldsmith = str(Path(sys.executable).parent / "goldsmith")
    build, lock = [goldsmith, "build", target], [goldsmith, "lock", target]
    rows: dict[str, Cost] = {}

    def row(name: str, *commands: Sequence[str | Path]) -> None:
        print(f"  {name} …", file=sys.stderr, flush=True)
        rows[name] = cost(folder, *commands, env={"GOLDSMITH_STATE": str(state)})

    row("cold: nothing there, packages are fetched", build)
    row("plain mmdebstrap, from a mirror", plain(project, image, state, folder, pool=False))
    (folder / "plain.tar.zst").unlink()
    for part in ("build", "images"):
        shutil.rmtree(state / part)
    row("warm pool", build)
    row("plain mmdebstrap, from the pool", plain(project, image, state, folder, pool=True))
    edit(project / ROLE_FILE, lambda text: text + "# changed\n")
    row("one role's file changed", build)
    edit(project / "images" / image / "image.yml", lambda text: text.replace(*PIN))
    row(f"one pin changed ({' to '.join(PIN)}): lock and build", lock, build)
    row("nothing changed", build)
    return table(rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watch"]:
        raise SystemExit(watched(Path(sys.argv[2]), sys.argv[3:]))
    main(sys.argv[1] if len(sys.argv) > 1 else "lab")
