"""Core part: Python environments, by what their projects recorded. Shipped to nodes: Python 3.8, standard library only.

pip isn't asked: it takes half a second, and doesn't know that a file was replaced. Every file is looked at by its
size, in a deep probe by its hash: 15,000 files of a PyTorch environment take 0.2 s (docs/measured.md).
Facts: PEP 376 and the packaging guide on RECORD (csv; sha256 in base64 without padding), pyvenv.cfg of site.py.
"""

from __future__ import annotations

import base64
import csv
import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from goldsmith.probe.node.run import Run

ROOT = "/opt/goldsmith/python"
# Written last, with the digest of what is in the environment: without it one was never finished.
COMPLETE = ".complete"
# Our own module and .pth file in site-packages (goldsmith/converge/operations/python.py).
PIN = "goldsmith_pin"
MOST = 20


def environment_facts(run: Run) -> dict[str, Any]:
    """name → link (the folder's name that ROOT/NAME leads to, or what else stands there) and folders: folder → its
    facts, of that folder and of every other one that is what is wanted. Without wishes: of every link."""
    wanted = run.want.get("environments")
    if wanted is None:
        names = [path.rsplit("/", 1)[1] for path in run.glob(ROOT + "/*") if os.path.islink(run.path(path))]
        wanted = dict.fromkeys(names, "")
    return {name: look(run, name, digest) for name, digest in wanted.items()}


def look(run: Run, name: str, digest: str) -> dict[str, Any]:
    """One environment. taken: every folder of that name → its mark, so that a new one gets a name of its own."""
    place = run.path(ROOT + "/" + name)
    try:
        link: str | None = "(not a link)" if os.path.lexists(place) else None
        if os.path.islink(place):
            link = os.readlink(place)
        ours = re.compile(re.escape(name) + r"-[0-9a-f]{12}(\.\d+)?$")
        taken = [one for one in (os.listdir(run.path(ROOT)) if run.exists(ROOT) else []) if ours.match(one)]
        marks = {one: (run.read(ROOT + "/" + one + "/" + COMPLETE) or "").strip() for one in taken}
        chosen = [one for one in sorted(taken) if one == link or (digest and marks[one] == digest)]
        folders = {one: dict(describe(run, ROOT + "/" + one), digest=marks[one]) for one in chosen}
    except OSError as error:
        return {"error": f"{error.filename}: {error.strerror}"}
    return {"link": link, "folders": folders, "taken": marks}


def describe(run: Run, folder: str) -> dict[str, Any]:
    """python: as pyvenv.cfg says. system_site: whether the system's packages show through. runs: whether its python is
    there. projects: normalised name → version, several with ` and `. since: project → when it came. wrong: files that
    aren't as recorded, MOST of them, and how many there are; changed: since when."""
    lines = (run.read(folder + "/pyvenv.cfg") or "").splitlines()
    config = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    projects: dict[str, str] = {}
    since: dict[str, str] = {}
    records: dict[str, tuple[str, str]] = {}
    wrong: list[str] = []
    newest = 0.0
    for site in run.glob(folder + "/lib/python3*/site-packages"):
        for info in run.glob(site + "/*.dist-info"):
            name, version = project(run, info)
            since[name] = run.iso(os.stat(run.path(info)).st_ctime)
            projects[name] = projects[name] + " and " + version if name in projects else version
            records.update(recorded(run, site, info))
        for path, status in files(run.path(site)):
            path = run.inside(path)
            size = records.pop(path, None)
            if size is None:
                if path in (site + "/" + PIN + ".py", site + "/" + PIN + ".pth"):
                    continue
                wrong.append(short(folder, path) + " is of no project")
            elif size[0] and int(size[0]) != status.st_size:
                wrong.append(short(folder, path) + " is changed")
            elif run.deep and size[1]:
                records[path] = size  # to be hashed below
                continue
            else:
                continue
            newest = max(newest, status.st_ctime)
    # what is left is outside of site-packages (bin/), is gone, or is to be hashed
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        for path, fault in pool.map(lambda one: (one[0], compare(run, *one)), sorted(records.items())):
            if fault:
                wrong.append(short(folder, path) + " is " + fault)
    match = re.match(r"3\.\d+", config.get("version", ""))
    return {
        "python": match.group() if match else "",
        "system_site": config.get("include-system-site-packages", "").lower() == "true",
        "runs": os.access(run.path(run.real(folder + "/bin/python")), os.X_OK),
        "projects": projects,
        "since": since,
        "wrong": sorted(wrong)[:MOST],
        "wrong_count": len(wrong),
        "changed": {"since": run.iso(newest) if newest else ""},
    }


def project(run: Run, info: str) -> tuple[str, str]:
    """Name and version of a .dist-info: from METADATA, or from the folder's name where that says nothing."""
    head = (run.read(info + "/METADATA", limit=1 << 16) or "").split("\n\n", 1)[0]
    fields = dict(re.findall(r"^(Name|Version):[ \t]*(\S+)", head, re.M))
    name, _, version = info.rsplit("/", 1)[1][: -len(".dist-info")].partition("-")
    name = fields.get("Name", name)
    return re.sub(r"[-_.]+", "-", name).lower(), fields.get("Version", version)


def recorded(run: Run, site: str, info: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """path → (size, sha256) of a RECORD, each empty where it says none (its own line)."""
    lines = (run.read(info + "/RECORD", limit=1 << 28) or "").splitlines()
    for row in csv.reader(lines):
        if len(row) >= 3 and "__pycache__" not in row[0]:
            digest = row[1][len("sha256=") :] if row[1].startswith("sha256=") else ""
            path = row[0] if row[0].startswith("/") else os.path.normpath(os.path.join(site, row[0]))
            yield path, (row[2] if row[2].isdigit() else "", digest)


def files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every file below, links included and not followed; what Python compiled doesn't count."""
    stack = [folder]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        stack.append(entry.path)
                else:
                    yield entry.path, entry.stat(follow_symlinks=False)


def compare(run: Run, path: str, record: tuple[str, str]) -> str:
    """What is wrong with a recorded file, in a word; empty if nothing is."""
    try:
        status = os.lstat(run.path(path))
        if record[0] and int(record[0]) != status.st_size:
            return "changed"
        if run.deep and record[1]:
            digest = base64.urlsafe_b64encode(bytes.fromhex(run.sha256(path))).decode().rstrip("=")
            return "" if digest == record[1] else "changed"
    except (FileNotFoundError, NotADirectoryError):
        return "gone"
    return ""


def short(folder: str, path: str) -> str:
    """The path below the environment's folder, and in site-packages from there."""
    return re.sub(r"^lib/python3[^/]*/site-packages/", "", path[len(folder) + 1 :])
