"""The driver's module options in an image's variables: do they do anything?"""

from __future__ import annotations

from collections.abc import Iterator

from goldsmith import Hit, Image, Lock, Rule, Severity

FIRMWARE = Rule(
    "OK4", Severity.FAIL, "the GPU's firmware (GSP) isn't switched off for the open kernel modules, which need it",
    "NVIDIA/open-gpu-kernel-modules#820",
    "leave NVreg_EnableGpuFirmware out: these modules use GSP whatever it says",
    # one report, on a desktop GPU
    verified=False,
)  # fmt: skip
OPTIONS = Rule(
    "OK6", Severity.FAIL, "module options are NAME: VALUE", "modprobe.d(5)",
    "correct nvidia_driver_module_options: deploy refuses it as it is",
)  # fmt: skip
RULES = (FIRMWARE, OPTIONS)


def lint(image: Image, lock: Lock | None) -> Iterator[Hit]:
    options = image.variables.get("nvidia_driver_module_options") or {}
    field = ("variables", "nvidia_driver_module_options")
    if not isinstance(options, dict):
        yield OPTIONS.hit(f"they are {options!r}, not a mapping", *field)
        return
    driver, off = image.stack.driver, options.get("NVreg_EnableGpuFirmware")
    if driver and driver.flavor == "open" and off is not None and str(off).lower() in ("0", "false"):
        yield FIRMWARE.hit(f"NVreg_EnableGpuFirmware={off} with open kernel modules", *field, "NVreg_EnableGpuFirmware")
