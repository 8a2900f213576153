"""From an environment's requirements to exact wheels, each with its file name, hash and size, chosen by uv.

uv resolves twice: once for the versions and who needs them, once more, with these versions, for the files that the
image's Python and platform take (its pylock.toml, PEP 751). What the previous lock has stays unless asked to move.
"""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache as cached
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from goldsmith.errors import GoldsmithError
from goldsmith.lock import uv
from goldsmith.lock.apt import Say
from goldsmith.lock.download import size_of
from goldsmith.model.lock import LockedEnvironment, LockedWheel
from goldsmith.model.stack import Environment
from goldsmith.progress import console
from goldsmith.yamlfile import Places

# The glibc of a release decides which wheels its Python takes (PEP 600): libc6's version there.
GLIBC = {("debian", "bookworm"): 36, ("debian", "trixie"): 41, ("ubuntu", "jammy"): 35, ("ubuntu", "noble"): 39}
# manylinux_2_NN that `uv pip compile --python-platform` has; its help names them.
KNOWN = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)
MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Offer:
    """One wheel that an index has. size: 0 where the index doesn't say it."""

    name: str
    version: str
    filename: str
    url: str
    sha256: str
    size: int


def resolve_environment(
    name: str,
    env: Environment,
    distribution: str,
    release: str,
    architecture: str,
    cache: Path,
    previous: LockedEnvironment | None,
    upgrade: Collection[str] | None,
    places: Places,
    say: Say,
) -> LockedEnvironment:
    """The wheels of one environment of image.yml.

    cache: uv's own. previous: the lock's environment of this name. upgrade: None resolves everything anew, a
    collection moves these projects alone (names that the environment hasn't got don't matter) and what they pull.
    The same input comes out the same. Raises GoldsmithError with image.yml's line where one is to blame.
    """
    requirements = _requirements(name, env, places)
    platform = _platform(name, env, distribution, release, architecture, places)
    target = uv.Target(env.python, _for_uv(platform), env.index)
    keep = previous if upgrade is not None else None
    moving = {canonicalize_name(one) for one in upgrade or ()}
    with tempfile.TemporaryDirectory(prefix="goldsmith-python-") as made:
        folder = Path(made)
        (folder / "requirements.in").write_text("".join(f"{one}\n" for one in env.requirements))
        options = ["-o", "chosen.txt", "--annotation-style", "line"]
        if keep:
            # uv keeps the versions of an output file that is there already, as long as the requirements allow them
            pins = [f"{one.name}=={one.version}\n" for one in keep.wheels.values()]
            (folder / "chosen.txt").write_text("".join(pins))
            options += [word for one in sorted(moving & set(keep.wheels)) for word in ("--upgrade-package", one)]
        say("ask the package index")
        done = uv.compile_(target, folder, cache, *options, what=f"resolve Python environment {name}")
        if done.code != 0:
            raise _blame(done, name, requirements, target, cache, places)
        for warning in uv.said(done)[1]:  # a version that was taken back, but is required exactly
            console.print(f"  ! Python environment {name}: {warning}", markup=False, soft_wrap=True)
        chosen = parse_chosen((folder / "chosen.txt").read_text())
    say(f"look at {len(chosen)} wheels")
    offers = offered({one: version for one, (version, _) in chosen.items()}, target, cache, places.of("python", name))
    wheels = {}
    for one, (version, why) in sorted(chosen.items()):
        known = previous.wheels.get(one) if previous else None
        offer = pick(offers.get(one, []), env.python, platform, known.filename if known and keep else None)
        if offer is None:
            raise GoldsmithError(
                f"{one} {version} has no wheel for Python {env.python} on {platform}", where=places.of("python", name),
                hint="require a version that has one, or build the wheel and put it on an index of your own",
            )  # fmt: skip
        if known and known.filename == offer.filename and known.sha256 != offer.sha256 and keep and one not in moving:
            raise GoldsmithError(
                f"{offer.filename} isn't the file that was locked: sha256 {offer.sha256}, locked {known.sha256}",
                where=places.of("python", name),
                hint=f"an index never changes a file rightly; if you know why: goldsmith lock IMAGE --upgrade {one}",
            )
        size = offer.size or (known.size if known and known.sha256 == offer.sha256 else 0) or size_of(offer.url)
        wheels[one] = LockedWheel(
            name=one, version=version, filename=offer.filename, sha256=offer.sha256, size=size, why=why
        )
    return LockedEnvironment(python=env.python, platform=platform, index=env.index, wheels=wheels)


def require_python(name: str, env: Environment, python3: str | None, places: Places) -> None:
    """Raises GoldsmithError unless the image's own python3 (its deb's version, None without one) is env.python."""
    found = ".".join(python3.split(":")[-1].split(".")[:2]) if python3 else None
    if found != env.python:
        raise GoldsmithError(
            f"the environment is for Python {env.python}, the image has {found or 'no python3'}",
            where=places.of("python", name, "python"),
            hint=f"write python: '{found}'" if found else "add python3 to base.packages",
        )


def urls(environment: LockedEnvironment, wheels: Iterable[LockedWheel], cache: Path, where: str) -> dict[str, str]:
    """sha256 → where the index has that very file now. Raises GoldsmithError for one that it has no more, or has
    otherwise."""
    wanted = {one.name: one for one in wheels}
    target = uv.Target(environment.python, _for_uv(environment.platform), environment.index)
    offers = offered({name: one.version for name, one in wanted.items()}, target, cache, where)
    found = {one.sha256: one.url for many in offers.values() for one in many}
    for name, wheel in wanted.items():
        if wheel.sha256 in found:
            continue
        other = next((one for one in offers.get(name, []) if one.filename == wheel.filename), None)
        what = f"another file: sha256 {other.sha256}, locked {wheel.sha256}" if other else "gone"
        raise GoldsmithError(
            f"{wheel.filename} of the index is {what}", where=where,
            hint="take the wheel from a pool that has it, or lock anew: goldsmith lock IMAGE --upgrade " + name,
        )  # fmt: skip
    return found


def offered(versions: Mapping[str, str], target: uv.Target, cache: Path, where: str) -> dict[str, list[Offer]]:
    """project → every wheel of that version which uv says the target takes."""
    if not versions:
        return {}
    with tempfile.TemporaryDirectory(prefix="goldsmith-python-") as made:
        folder = Path(made)
        (folder / "requirements.in").write_text("".join(f"{name}=={one}\n" for name, one in sorted(versions.items())))
        options = ["--no-deps", "--format", "pylock.toml", "-o", "pylock.toml", "--no-annotate"]
        done = uv.compile_(target, folder, cache, *options, what="look at the wheels")
        if done.code != 0:
            raise uv.explain(uv.said(done)[0], target, where)
        return parse_pylock((folder / "pylock.toml").read_text(), folder)


def parse_pylock(text: str, folder: Path) -> dict[str, list[Offer]]:
    """uv's pylock.toml. folder: what its paths are relative to."""
    found: dict[str, list[Offer]] = {}
    for package in tomllib.loads(text).get("packages", []):
        name = canonicalize_name(package["name"])
        for wheel in package.get("wheels", []):
            url = wheel.get("url") or (folder / wheel["path"]).resolve().as_uri()
            filename = wheel.get("name") or unquote(urlsplit(url).path.rsplit("/", 1)[-1])
            digest = wheel.get("hashes", {}).get("sha256", "")
            if digest:
                found.setdefault(name, []).append(
                    Offer(name, package["version"], filename, url, digest, int(wheel.get("size", 0)))
                )
    return found


def parse_chosen(text: str) -> dict[str, tuple[str, str]]:
    """project → version and why, of uv's `name==version  # via …` lines (--annotation-style line)."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        match = re.match(r"([A-Za-z0-9][\w.-]*)==([^\s;]+)(?:\s.*?# via (.*))?$", line)
        if match:
            via = [one.strip() for one in (match[3] or "").split(",") if one.strip()]
            needed = sorted(canonicalize_name(one.split("[")[0]) for one in via if not one.startswith("-r "))
            required = any(one.startswith("-r ") for one in via) or not needed
            found[canonicalize_name(match[1])] = (match[2], "required" if required else f"needed by {needed[0]}")
    return found


def pick(offers: Iterable[Offer], python: str, platform: str, keep: str | None = None) -> Offer | None:
    """The one that pip would take on the target: the most specific tag, then the highest build number.

    keep: a file name that is taken if it is there: a build that was added later doesn't move a lock.
    """
    ranks = _ranks(python, platform)
    best: tuple[Any, Offer] | None = None
    for one in sorted(offers, key=lambda one: one.filename):
        try:
            _, _, build, tags = parse_wheel_filename(one.filename)
        except InvalidWheelFilename:
            continue
        rank = min((ranks[str(tag)] for tag in tags if str(tag) in ranks), default=None)
        if rank is None:
            continue
        if one.filename == keep:
            return one
        key = (-rank, build)
        if best is None or key > best[0]:
            best = key, one
    return best[1] if best else None


@cached
def _ranks(python: str, platform: str) -> dict[str, int]:
    """tag → its place in pip's order of preference (PEP 425, PEP 600 with the older names of its tags)."""
    match = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", platform)
    assert match, platform
    machine = match[2]
    old = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    names = []
    for minor in range(int(match[1]), 4, -1):
        names.append(f"manylinux_2_{minor}_{machine}")
        if minor in old:
            names.append(f"{old[minor]}_{machine}")
    names.append(f"linux_{machine}")
    version = tuple(map(int, python.split(".")))
    interpreter = "cp" + python.replace(".", "")
    tags = [*cpython_tags(version, abis=[interpreter], platforms=names)]
    tags += compatible_tags(version, interpreter=interpreter, platforms=names)
    ranks: dict[str, int] = {}
    for number, tag in enumerate(tags):
        ranks.setdefault(str(tag), number)
    return ranks


def _requirements(name: str, env: Environment, places: Places) -> list[str]:
    """Their normalised project names. Raises GoldsmithError for what a wheelhouse can't hold."""
    names: list[str] = []
    for number, text in enumerate(env.requirements):
        where = places.of("python", name, "requirements", number)
        try:
            one = Requirement(re.sub(r"\s#.*$", "", text))
        except InvalidRequirement as error:
            if re.match(r"[a-z+]+:|[^\s;]*/|[^\s;@]*\.(whl|zip|tar\.gz)$", text):
                raise _not_from_an_index(text, where) from None
            reason = str(error).splitlines()[0]
            raise GoldsmithError(
                f"not a requirement: {uv.no_password(text)!r}: {reason}", where=where,
                hint="e.g. torch==2.6.0; hashes and pip's options don't belong here, the lock has the hashes",
            ) from None  # fmt: skip
        if one.url or one.name.endswith((".whl", ".zip", ".gz")):
            raise _not_from_an_index(text, where)
        names.append(canonicalize_name(one.name))
    return names


def _not_from_an_index(text: str, where: str) -> GoldsmithError:
    return GoldsmithError(
        f"{uv.no_password(text)} is an address, a path or a source repository: the lock can't name its wheel by hash",
        where=where,
        hint="build a wheel of it, put it on an index of your own, and name that as `index`",
    )


def _platform(
    name: str, env: Environment, distribution: str, release: str, architecture: str, places: Places
) -> str:  # fmt: skip
    """The newest tag of both the image's glibc and uv, e.g. manylinux_2_40_x86_64."""
    if env.platform:
        newest = int(env.platform.rsplit("_", 1)[1])
    elif (distribution, release) in GLIBC:
        newest = GLIBC[distribution, release]
    else:
        raise GoldsmithError(
            f"the glibc of {distribution} {release} isn't known here", where=places.of("python", name),
            hint="name the newest wheel tag it takes, e.g. platform: manylinux_2_39 for glibc 2.39",
        )  # fmt: skip
    known = [one for one in KNOWN if one <= newest]
    if not known:
        raise GoldsmithError(
            f"{env.platform} is older than any that uv resolves for", where=places.of("python", name, "platform"),
            hint=f"manylinux_2_{KNOWN[0]} or newer",
        )  # fmt: skip
    return f"manylinux_2_{known[-1]}_{MACHINE[architecture]}"


def _for_uv(platform: str) -> str:
    """manylinux_2_40_x86_64 → x86_64-manylinux_2_40."""
    tag, number, minor, machine = platform.split("_", 3)
    return f"{machine}-{tag}_{number}_{minor}"


def _blame(
    done: Any, name: str, requirements: list[str], target: uv.Target, cache: Path, places: Places
) -> GoldsmithError:  # fmt: skip
    """uv's error, at the requirement that it is about, with the versions that there are."""
    text = uv.said(done)[0]
    number = uv.guilty(text, requirements)
    where = places.of("python", name, "requirements", *(() if number is None else (number,)))
    wanting = uv.wanting(text)
    return uv.explain(text, target, where, _near(*wanting, target, cache) if wanting else "")


def _near(project: str, version: str, target: uv.Target, cache: Path) -> str:
    """The versions next to one that there isn't: uv doesn't name them, so it is asked."""
    found: list[str] = []
    for label, requirement in (("next lower", f"{project}<={version}"), ("newest", project)):
        if label == "next lower" and not version:
            continue
        with tempfile.TemporaryDirectory(prefix="goldsmith-python-") as made:
            (Path(made) / "requirements.in").write_text(f"{requirement}\n")
            done = uv.compile_(target, Path(made), cache, "--no-deps", "--no-annotate", what="look for versions")
        match = re.search(r"==(\S+)", done.out) if done.code == 0 else None
        if match and match[1] not in " ".join(found):
            found.append(f"{label} {match[1]}")
    return f"versions of {project} with such a wheel: {', '.join(found)}" if found else ""
