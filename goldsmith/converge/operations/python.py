"""Python environments: each made whole in a folder of its own, from the lock's wheels alone, then linked to.

    /opt/goldsmith/python/NAME          a link, swapped by a rename
    /opt/goldsmith/python/NAME-DIGEST   what it leads to; .complete is written last, the one before it is kept

A venv has its own path in it and can't be moved, so it is made where it stays. pip is the distribution's wheel of it
(python3-pip-whl, which venv uses, too), run from there: the environment itself has the locked wheels and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from shlex import quote
from typing import Any
from urllib.parse import urlsplit

from pyinfra import logger
from pyinfra.api import FileUploadCommand, FunctionCommand, StringCommand, operation
from pyinfra.api.command import PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from goldsmith.compare_python import environment_faults
from goldsmith.converge.connectors.rootfs import POOL_INSIDE
from goldsmith.converge.host import changed, differences, this_probe
from goldsmith.converge.operations.files import back_up
from goldsmith.lock.sources import parse_deb822
from goldsmith.model.finding import Severity
from goldsmith.model.lock import POOL_SOURCES
from goldsmith.model.node import Target
from goldsmith.model.resource import PYTHON_ROOT, File, PythonEnvironment
from goldsmith.plan import Plan
from goldsmith.probe.node.environments import COMPLETE, PIN

TIMEOUT = 3600
PIP = "/usr/share/python-wheels/pip-*.whl"
# What started through the link must not load the modules of the next environment when the link is swapped under it.
_PIN = """\
# Made by goldsmith: what was started through the link to this environment stays in this one when the link moves on.
import os
import sys

real = os.path.realpath(sys.prefix)


def pinned(path):
    return real + path[len(sys.prefix) :] if path.startswith(sys.prefix + os.sep) else path


sys.path[:] = [pinned(one) for one in sys.path]
sys.executable = pinned(sys.executable)
sys.prefix = sys.exec_prefix = real
"""


def requirements(environment: PythonEnvironment) -> str:
    """What pip installs: every project with its version and the one hash that is accepted."""
    return "".join(
        f"{name}=={wheel.version} --hash=sha256:{wheel.sha256}\n"
        for name, wheel in sorted(environment.wheels.items())
    )  # fmt: skip


def pool_url(files: Mapping[str, File], target: Target) -> str | None:
    """The pool as the node sees it: in a tree the bound folder, on a node what a role promises apt's sources to be."""
    if target == "image":
        return f"file://{POOL_INSIDE}"
    file = files.get(POOL_SOURCES)
    entries = parse_deb822(file.content) if file else []
    return next((uri.rstrip("/") for one in entries for uri in one.uris), None)


def choose(environment: PythonEnvironment, have: Mapping[str, Any]) -> tuple[str, bool]:
    """The folder that the link shall lead to, and whether it is there, as locked.

    A folder that is there and isn't as locked is never repaired: a job may run in it, and what was installed over
    another project's files can't be undone. A new one is made beside it.
    """
    for folder, facts in have["folders"].items():
        if not list(environment_faults(environment, facts, folder)):
            return folder, True
    names = [environment.folder, *(f"{environment.folder}.{number}" for number in range(1, 100))]
    free = (one for one in names if one != have["link"] and not have["taken"].get(one))
    return next(free, names[-1]), False


def make(environment: PythonEnvironment, folder: str, url: str, image: str, target: Target) -> Iterator[PyinfraCommand]:
    """The commands that make one environment, from nothing. A failure leaves nothing that looks complete."""
    path = f"{PYTHON_ROOT}/{folder}"
    python = f"/usr/bin/python{environment.python}"
    yield StringCommand(
        f"umask 022 && rm -rf -- {path} && mkdir -p {PYTHON_ROOT} && if [ ! -x {python} ]; then"
        f" echo 'there is no {python}: the image must have this Python' >&2; exit 1; fi"
        f" && {python} -m venv --without-pip {path} && mkdir -m 0700 {path}/.tmp"
    )
    site = f"{path}/lib/python{environment.python}/site-packages"
    pinned = {f"{site}/{PIN}.py": _PIN, f"{site}/{PIN}.pth": f"import {PIN}\n"}
    for place, text in {f"{path}/requirements.txt": requirements(environment), **pinned}.items():
        yield FileUploadCommand(BytesIO(text.encode()), place)
    # PYTHONHASHSEED: the order of a set's constants is in the compiled file, and so in the image's digest
    clean = f"env -i PATH=/usr/bin:/bin HOME={path}/.tmp TMPDIR={path}/.tmp LC_ALL=C.UTF-8 TZ=UTC PYTHONHASHSEED=0"
    steps = [f"cd / && umask 022 && chmod 0644 {' '.join([f'{path}/requirements.txt', *pinned])}"]
    if environment.wheels:
        steps.append(f"set -- {PIP}")
        install = _install(path, url, image)
        steps.append(f'{clean} PIP_CONFIG_FILE=/dev/null {path}/bin/python -B "$1/pip" {install}')
    # checked by the source's hash, not by its time: the same in every build, and an edited file is still noticed
    steps.append(
        f"{{ {clean} {path}/bin/python -B -m compileall -q --invalidation-mode checked-hash {site} >&2 || :; }}"
    )
    steps.append(f"rm -rf -- {path}/.tmp")
    if target == "live":
        steps.append(f"sync -f {path}")  # the mark must not outlive a power cut that the files don't
    steps.append(f"printf '%s\\n' {environment.digest} > {path}/{COMPLETE}")
    # what pip couldn't finish is gigabytes that nobody asks for
    yield StringCommand(
        f"{{ {' && '.join(steps)}; }} || {{ code=$?; rm -rf -- {path}; exit $code; }}", _timeout=TIMEOUT
    )


def _install(path: str, url: str, image: str) -> str:
    name = path.rsplit("/", 1)[1].rsplit("-", 1)[0]
    words = [
        "install", "-q", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--no-compile", "--no-deps",
        "--require-hashes", "--only-binary", ":all:", "--no-warn-script-location", "--progress-bar", "off",
        "--retries", "3", "--timeout", "60", "--index-url", f"{url}/simple/{image}/{name}/",
    ]  # fmt: skip
    parts = urlsplit(url)
    if parts.scheme == "http":
        # pip takes nothing over plain http unless told so, for this host alone; what it takes is what the hashes say
        words += ["--trusted-host", parts.netloc.rpartition("@")[2]]
    return " ".join([*map(quote, words), "-r", f"{path}/requirements.txt"])


def swap(name: str, folder: str) -> str:
    """Make the link lead to another folder, in one step: `ln -sf` takes the old one away first."""
    new = f"{PYTHON_ROOT}/.{name}.new"
    return f"ln -sfn -- {folder} {new} && mv -fT -- {new} {PYTHON_ROOT}/{name}"


# Runs on the node: Python 3.8, standard library only. A folder stays if it may be in use, or if we can't tell.
_SWEEP = """
import json, os, re, shutil, sys
root, name, keep = json.loads(WHAT)
ours = re.compile(re.escape(name) + r"-[0-9a-f]{12}(\\.\\d+)?$")
old = [one for one in os.listdir(root) if ours.match(one) and one not in keep]
used = b""
# not ourselves, and not init, which even root may be forbidden to look into, and which is no job
for pid in [one for one in os.listdir("/proc") if one.isdigit() and int(one) not in (1, os.getpid())] if old else []:
    for what in ("maps", "cmdline", "environ"):
        try:
            with open("/proc/%s/%s" % (pid, what), "rb") as file:
                used += b"\\n".join(line for line in file.read().split(b"\\n") if root.encode() in line) + b"\\n"
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            sys.exit(0)
    try:
        used += os.readlink("/proc/%s/cwd" % pid).encode() + b"/\\n"
    except OSError:
        continue
if ("%s/%s/" % (root, name)).encode() in used:
    sys.exit(0)
for one in old:
    if ("%s/%s/" % (root, one)).encode() not in used:
        if os.path.exists(root + "/" + one + "/.complete"):
            os.unlink(root + "/" + one + "/.complete")
        shutil.rmtree(root + "/" + one, ignore_errors=True)
"""


def sweep(name: str, keep: list[str]) -> StringCommand:
    """Remove the environment's other folders, as far as nothing runs in them. The script comes on stdin: on the command
    line its own paths would look like a use."""
    what = json.dumps([PYTHON_ROOT, name, keep])
    return StringCommand("/usr/bin/python3 -I -S -", _stdin=_SWEEP.replace("WHAT", repr(what)))


def commands(
    environment: PythonEnvironment, have: Mapping[str, Any], url: str, image: str, target: Target, stamp: str
) -> Iterator[PyinfraCommand]:
    """What brings one environment to its lock. have: what the probe says of it."""
    folder, ready = choose(environment, have)
    link = have["link"]
    if not ready:
        yield from make(environment, folder, url, image, target)
    if link == "(not a link)":
        yield back_up(f"{PYTHON_ROOT}/{environment.name}", stamp)
    yield StringCommand(swap(environment.name, folder))
    keep = [folder]
    if link in have["folders"]:
        if have["folders"][link]["digest"] == environment.digest and link != folder:
            # damaged: nobody shall go back to it
            yield StringCommand(f"rm -f -- {PYTHON_ROOT}/{link}/{COMPLETE}")
        else:
            keep.append(link)
    if target == "live":
        yield sweep(environment.name, keep)


@operation()
def environments(plan: Plan, stamp: str) -> Iterator[PyinfraCommand]:
    """Every Python environment that isn't as locked is made anew, or linked to again if it is still there."""
    found = yield from differences(plan, ["environments"])
    names = dict.fromkeys(one.key.split(" ")[0] for one in found if one.severity is not Severity.UNKNOWN)
    if not names:
        return
    url = pool_url(plan.desired.files, plan.node.target)
    if url is None:
        yield FunctionCommand(_no_pool, (), {})
        return
    facts = this_probe(plan).part("environments")
    changed()
    for name in names:
        environment = plan.desired.environments[name]
        yield from commands(environment, facts[name], url, plan.lock.image, plan.node.target, stamp)


def _no_pool(state: State, host: Host) -> bool:
    host.log(f"no role promises {POOL_SOURCES}, which says where the wheels are", logger.error)
    return False
