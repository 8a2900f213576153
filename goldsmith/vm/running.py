"""A machine that runs: started, watched, told, and ended with nothing left."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from goldsmith import process
from goldsmith.errors import GoldsmithError
from goldsmith.progress import console as progress
from goldsmith.vm import accelerator as accelerators
from goldsmith.vm import console
from goldsmith.vm.accelerator import Accelerator
from goldsmith.vm.machine import Machine, Places, command, overlay_command
from goldsmith.vm.qmp import Qmp, QmpError

# A guest that KVM can't execute has died after a quarter of a second (measured); one that can has booted its firmware.
TRIAL_SECONDS = 1.5
_FORWARDED = re.compile(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s")
# states in which a guest executes nothing any more, and never will
_DEAD = ("internal-error", "io-error", "guest-panicked")


class Running:
    """One start of a machine. started: time.monotonic(). port: of 127.0.0.1, forwarded to the guest's sshd."""

    def __init__(self, machine: Machine, places: Places, accelerator: Accelerator) -> None:
        """Start QEMU; returns when it answers. Raises GoldsmithError; then nothing is left running."""
        self.machine, self.places, self.accelerator = machine, places, accelerator
        self.started = time.monotonic()
        shutil.copyfile(machine.firmware.variables, places.variables)
        places.overlay.unlink(missing_ok=True)
        process.run(overlay_command(machine, places), timeout=60, what=f"lay an overlay over {machine.disk.path}")
        places.console.write_bytes(b"")
        ours, theirs = socket.socketpair()
        with theirs, places.log.open("wb") as log:
            argv = command(machine, places, accelerator, theirs.fileno())
            try:
                self._process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=places.folder, start_new_session=True,
                    pass_fds=[theirs.fileno()], env={**os.environ, "LC_ALL": "C.UTF-8"}, text=True,
                )  # fmt: skip
            except OSError as error:
                ours.close()
                raise GoldsmithError(f"{argv[0]} can't be started: {error.strerror}", where=machine.name) from None
        self.qmp = Qmp(ours)
        try:
            self.qmp.greet()
            self.port = _port(self.qmp.monitor("info usernet"))
        except QmpError as error:
            self.kill()
            raise GoldsmithError(f"QEMU doesn't start: {self._said() or error.what}", where=machine.name) from None
        except BaseException:
            self.kill()
            raise

    @property
    def ended(self) -> bool:
        """QEMU has ended: the guest was powered off, or QEMU failed."""
        return self._process.poll() is not None

    @property
    def resets(self) -> int:
        """How often the guest was reset, by itself (a reboot) or by `reset`, as far as `wrong` has asked QEMU."""
        return sum(one.get("event") == "RESET" for one in self.qmp.events)

    def wrong(self) -> str:
        """Why this machine will never do anything again, in a line; empty while it may."""
        if self.ended:
            return self._said() or "QEMU ended: the guest powered itself off"
        try:
            state = self.qmp.status()
        except QmpError as error:
            return self._said() or error.what
        return f"{self._said() or 'QEMU stopped it'} (state {state})" if state in _DEAD else ""

    def require(self) -> None:
        """Raises GoldsmithError, with the console's end, where the machine can't do anything any more."""
        if wrong := self.wrong():
            raise self.error(wrong)

    def error(self, what: str, hint: str = "") -> GoldsmithError:
        """An error of this machine, with the units that failed and the end of its console."""
        failed = console.failed_units(self.places.console)
        units = f". Failed: {', '.join(failed)}" if failed else ""
        tail = console.tail(self.places.console)
        return GoldsmithError(f"{what}{units}. The end of its console:\n  {tail}", where=self.machine.name, hint=hint)

    def reset(self) -> None:
        """The reset button: what wasn't written is lost, as in a power cut."""
        self.qmp.execute("system_reset")

    def detach(self, nvme: str) -> None:
        """Take an NVMe drive away while the machine runs, by its id; the guest is asked first, as by the hot-plug
        button. Returns at once."""
        self.qmp.execute("device_del", id=nvme)

    def power_off(self, patience: float) -> bool:
        """Press the power button, wait up to `patience` seconds, then pull the plug. Whether it went off by itself."""
        with contextlib.suppress(QmpError):
            self.qmp.execute("system_powerdown")
        deadline = time.monotonic() + patience
        while not self.ended and time.monotonic() < deadline:
            time.sleep(0.2)
        clean = self.ended
        self.kill()
        return clean

    def kill(self) -> None:
        """Pull the plug. Nothing is left of it but its files."""
        if not self.ended:
            # nothing of QEMU's is worth a farewell: the overlay goes, too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.qmp.close()

    def _said(self) -> str:
        """QEMU's own complaint: the first line that isn't a warning."""
        with contextlib.suppress(OSError):
            for line in self.places.log.read_text(errors="replace").splitlines():
                if line.strip() and "warning:" not in line:
                    return line.strip().removeprefix("qemu-system-x86_64: ")[:200]
        return ""


@contextmanager
def start(machine: Machine, folder: Path, candidates: Sequence[Accelerator] | None = None) -> Iterator[Running]:
    """The machine, running; at the end of the block it is gone, however that came.

    folder: empty, private, ours; overlay and logs go there. candidates: accelerators in the order to try them; by
    default what this machine has. Call it in a thread that lives as long as the machine: QEMU is killed with it.
    Raises GoldsmithError if QEMU can't be started.
    """
    one = _try(machine, Places(folder), candidates or accelerators.candidates())
    try:
        yield one
    finally:
        one.kill()


def _try(machine: Machine, places: Places, candidates: Sequence[Accelerator]) -> Running:
    for accelerator, following in zip(candidates, [*candidates[1:], None], strict=True):
        reason = ""
        try:
            one = Running(machine, places, accelerator)
        except GoldsmithError as error:
            if following is None:
                raise
            reason = error.what
        else:
            try:
                if following is None or not (reason := _dies(one)):
                    return one
            except BaseException:
                one.kill()
                raise
            one.kill()
        progress.print(
            f"{machine.name}: {accelerator.name} doesn't work here: {reason}; going on with {following.name}",
            soft_wrap=True, markup=False,
        )  # fmt: skip
    raise AssertionError("no accelerator")


def _dies(one: Running) -> str:
    """Why the guest died within its first moments, or nothing."""
    deadline = time.monotonic() + TRIAL_SECONDS
    while time.monotonic() < deadline:
        if wrong := one.wrong():
            return wrong
        time.sleep(0.1)
    return ""


def _port(usernet: str) -> int:
    """The forwarded port, from the monitor's `info usernet`."""
    if found := _FORWARDED.search(usernet):
        return int(found[1])
    raise QmpError(f"QEMU names no forwarded port: {usernet.strip()[-200:]!r}", where="info usernet")
