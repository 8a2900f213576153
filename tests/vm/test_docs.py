"""The commands of docs/boot-an-image.md, as a user would run them; its boots side by side, since each takes minutes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from goldsmith.project import state_dir
from goldsmith.vm import console
from tests.docs import commands
from tests.vm.conftest import PROJECT, USER_DATA, goldsmith

PAGE = PROJECT / "docs/boot-an-image.md"


def test_boot_an_image(artifact: Path, tmp_path: Path) -> None:
    assert artifact.is_dir()
    seed = tmp_path / "seed"
    seed.mkdir()
    (seed / "meta-data").write_text("instance-id: of-the-page\n")
    (seed / "user-data").write_text(USER_DATA.format(key="ssh-ed25519 AAAA nobody"))
    spoken = {"seed": str(seed), "consoles": str(tmp_path / "consoles")}
    running = []
    for words in commands(PAGE):
        words = [spoken.get(word, word.replace(".goldsmith", str(state_dir(PROJECT)), 1)) for word in words]
        if words[0] == "make" or "--keep" in words:
            continue  # make test-vm is this; --keep waits for Ctrl-C
        if words[1] == "boot":
            argv = [sys.executable, "-m", *words]
            log = (tmp_path / f"{len(running)}.log").open("w+")
            running.append((subprocess.Popen(argv, cwd=PROJECT, stdout=log, stderr=subprocess.STDOUT), log))
        else:
            goldsmith(*words[1:])
    try:
        codes = [process.wait(timeout=2700) for process, _ in running]
    finally:
        for process, _ in running:
            process.terminate()
    for _, log in running:
        log.seek(0)
        print(log.read())
        log.close()
    assert codes == [0, 0]
    assert "Started ssh.service" in console.text(tmp_path / "consoles/lab-1.log")
