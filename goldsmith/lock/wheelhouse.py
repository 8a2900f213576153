"""The wheels of all locks, in the pool beside the debs, and a package index over each lock's own.

    STATE/pool/wheels/ab/ab12…/NAME.whl     by content: images share them; those of old locks stay
    STATE/pool/simple/IMAGE/ENVIRONMENT/    a link's target, PEP 503's index of that image's present lock: static
                                            pages, relative links, each with its sha256; swapped in whole

Where a wheel is checked against the lock: when it is fetched (size and sha256, before it is put in place), at each
fill (size; with `verify` sha256), and by the node's pip, which installs with --require-hashes and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from goldsmith import atomic
from goldsmith.errors import GoldsmithError
from goldsmith.lock.apt import Say
from goldsmith.lock.download import download
from goldsmith.lock.fetch import file_sha256
from goldsmith.lock.published import Published
from goldsmith.lock.wheels import urls
from goldsmith.model.lock import Lock, LockedEnvironment, LockedWheel

# More at once gains nothing: one connection to a nearby index fills the line.
_AT_ONCE = 4


@dataclass(frozen=True)
class Wheelhouse:
    """The Python side of a pool. root: the pool's folder. Who writes to it holds the pool's lock file."""

    root: Path

    def path(self, wheel: LockedWheel) -> Path:
        return self.root / "wheels" / wheel.sha256[:2] / wheel.sha256 / wheel.filename

    def lacking(self, wheels: Iterable[LockedWheel], *, verify: bool = False) -> list[LockedWheel]:
        """The wheels that aren't here, or are other files than the lock's: by size, with `verify` by sha256."""
        return [one for one in wheels if not self._good(one, verify)]

    def damaged(self, lock: Lock) -> list[LockedWheel]:
        """The wheels of a lock that are missing or aren't what it says, each read whole."""
        return self.lacking(wheels_of(lock.environments), verify=True)

    def _good(self, wheel: LockedWheel, verify: bool) -> bool:
        path = self.path(wheel)
        try:
            return path.stat().st_size == wheel.size and (not verify or file_sha256(path) == wheel.sha256)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise GoldsmithError(f"can't be read: {error.strerror}", where=str(path)) from None

    def fetch(
        self, environments: Mapping[str, LockedEnvironment], cache: Path, say: Say, *, verify: bool = False
    ) -> None:  # fmt: skip
        """Fetch what is lacking of these environments.

        cache: uv's, which knows where the index has them. Raises GoldsmithError that names the wheel; those that
        came before it stay, so the next run goes on from there.
        """
        where: dict[str, str] = {}
        lacking: dict[str, LockedWheel] = {}
        for name, environment in environments.items():
            missing = [
                one for one in self.lacking(environment.wheels.values(), verify=verify) if one.sha256 not in lacking
            ]
            if missing:
                where |= urls(environment, missing, cache, f"Python environment {name}")
                lacking |= {one.sha256: one for one in missing}
        total, have = sum(one.size for one in lacking.values()), 0

        def progress(count: int) -> None:
            nonlocal have
            have += count
            say(f"{have / 1e6:.0f} of {total / 1e6:.0f} MB")

        # the largest first: it decides how long it takes
        largest = sorted(lacking.values(), key=lambda one: (-one.size, one.filename))
        with ThreadPoolExecutor(_AT_ONCE) as workers:
            running = [workers.submit(self._bring, one, where[one.sha256], progress) for one in largest]
            try:
                for one in running:
                    one.result()
            except BaseException:
                workers.shutdown(cancel_futures=True)
                raise

    def _bring(self, wheel: LockedWheel, url: str, progress: Callable[[int], None]) -> None:
        path = self.path(wheel)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
                folder.chmod(0o755)  # whatever our umask is: nodes are served from here
        except OSError as error:
            raise GoldsmithError(f"can't be made: {error.strerror}", where=str(path.parent)) from None
        download(url, path, digest=wheel.sha256, size=wheel.size, name=wheel.filename, progress=progress)

    def index(self, image: str) -> Published:
        return Published(self.root / "simple", self.root.parent / "pool-published", image)

    def faults(self, lock: Lock) -> list[str]:
        """What keeps the published indexes from being this lock's; empty if nothing."""
        index = self.index(lock.image)
        if not lock.environments:
            return [f"{index.link} is there, and the lock has no environments"] if index.link.is_symlink() else []
        return index.faults(lock.digest)

    def publish(self, lock: Lock) -> None:
        """Make the image's indexes list exactly the lock's wheels, and swap them in. Every wheel must be here.

        Raises GoldsmithError that names those which aren't, the old index untouched.
        """
        if missing := self.lacking(wheels_of(lock.environments)):
            raise GoldsmithError(
                f"the pool lacks {names_of(missing)}", where=str(self.root / "wheels"),
                hint=f"goldsmith pool fill images/{lock.image}",
            )  # fmt: skip
        if not lock.environments:
            self.index(lock.image).withdraw()
            return

        def make(folder: Path) -> None:
            for name, environment in lock.environments.items():
                self._index(folder / name, environment)

        self.index(lock.image).publish(lock.digest, make)

    def _index(self, folder: Path, environment: LockedEnvironment) -> None:
        """PEP 503: a page of all projects, and a page of each project's files."""
        wheels = environment.wheels
        atomic.write(folder / "index.html", _page("index", {name: f"{name}/" for name in sorted(wheels)}))
        for name, wheel in wheels.items():
            file = self.path(wheel).relative_to(self.root).as_posix()
            address = f"../../../../{quote(file)}#sha256={wheel.sha256}"
            atomic.write(folder / name / "index.html", _page(name, {wheel.filename: address}))
        for one in (folder, *(folder / name for name in wheels)):
            one.chmod(0o755)


def wheels_of(environments: Mapping[str, LockedEnvironment]) -> list[LockedWheel]:
    """Every wheel of these environments, each file once."""
    return list({one.sha256: one for env in environments.values() for one in env.wheels.values()}.values())


def names_of(wheels: Iterable[LockedWheel], most: int = 8) -> str:
    names = [one.filename for one in wheels]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _page(title: str, links: Mapping[str, str]) -> str:
    lines = "".join(f'<a href="{escape(address)}">{escape(text)}</a><br>\n' for text, address in links.items())
    return f"<!DOCTYPE html>\n<html><head><title>{escape(title)}</title></head><body>\n{lines}</body></html>\n"
