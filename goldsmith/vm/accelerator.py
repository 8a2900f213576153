"""What executes a guest's instructions: KVM where it works, QEMU's own translation (TCG) anywhere.

Whether KVM works can't be told from /dev/kvm: inside some virtual machines it opens, and the guest dies at its first
instruction that has to be emulated (`KVM internal error`). So it is tried (running.py), at every start.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DEVICE = Path("/dev/kvm")


@dataclass(frozen=True)
class Accelerator:
    """argv: what QEMU is told. boot: seconds a boot may take until ssh answers, by default. slowness: how many times
    longer than on a real machine anything may take in there; deadlines are multiplied by it.
    """

    name: str
    argv: tuple[str, ...]
    boot: float
    slowness: float


KVM = Accelerator("KVM", ("-accel", "kvm", "-cpu", "host"), boot=180.0, slowness=2.0)
# 62 s on an idle machine with two cores, 455 s on a loaded one. max: an image's programs may need AVX2; qemu64, which
# has none, takes a tenth to a quarter less of the CPU.
TCG = Accelerator("TCG (software emulation)", ("-accel", "tcg,thread=multi", "-cpu", "max"), boot=900.0, slowness=20.0)


def candidates(device: Path = DEVICE) -> tuple[Accelerator, ...]:
    """What to try here, in this order. Never empty."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return (TCG,)
    return (KVM, TCG)
