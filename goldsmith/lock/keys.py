"""The keys of an image's own repositories: fetched or read, and trusted by their fingerprint alone.

A keyring is written that holds the one key and no other, so that a repository can't pass with what else lay in the
file. Facts: gpg(1) in batch mode; apt's Signed-By (sources.list(5)).
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from goldsmith import atomic
from goldsmith.errors import GoldsmithError
from goldsmith.lock.apt import HELPER, Apt, Say
from goldsmith.lock.signing import gpg_home
from goldsmith.lock.sources import Source
from goldsmith.model.image import Image
from goldsmith.model.stack import Key
from goldsmith.process import run
from goldsmith.yamlfile import Places

HELPER_TIMEOUT = 120


def repository_sources(image: Image, places: Places, folder: Path, fetcher: Apt, say: Say) -> list[Source]:
    """The sources of an image's own repositories, their keys put into `folder`.

    fetcher: whose proxies and credentials a key is fetched with. Raises GoldsmithError with the field for a key that
    can't be had, or isn't the one with that fingerprint.
    """
    sources: list[Source] = []
    for name, one in image.repositories.items():
        same = next((had for had in sources if any(had.offers(one.uri, suite) for suite in one.suites)), None)
        if same:
            raise GoldsmithError(
                f"it is repository {same.repository} once more: the same URI and suite",
                where=places.of("repositories", name), hint="leave one of them out",
            )  # fmt: skip
        field = ("repositories", name, "key")
        keyring = _keyring(one.key, places, field, folder, fetcher, say)
        sources += [Source(one.uri, suite, tuple(one.components), str(keyring), name) for suite in one.suites]
    return sources


def _keyring(key: Key, places: Places, field: tuple[str, ...], folder: Path, fetcher: Apt, say: Say) -> Path:
    """The file with the key in it, named by its fingerprint.

    Fetched each time: a publisher extends a key's life under the same fingerprint, and a copy kept for ever would
    have the repository refused. One that is here serves where the address doesn't answer.
    """
    path = folder / f"{key.fingerprint}.asc"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".key-") as temporary:
        if key.url is not None:
            say(f"fetch the key {key.fingerprint[-16:]}")
            where = places.of(*field, "url")
            had = Path(temporary) / "key"
            try:
                _fetch(key.url, had, fetcher, where)
            except GoldsmithError:
                if path.is_file():
                    return path
                raise
        else:
            where = places.of(*field, "file")
            had = places.file_of(*field, "file").parent / str(key.file)
            if not had.is_file():
                raise GoldsmithError(f"there is no {had}", where=where, hint="the path is relative to its image.yml")
        atomic.write(path, _export(key.fingerprint, had, where), mode=0o644)
    return path


def _fetch(url: str, path: Path, fetcher: Apt, where: str) -> None:
    done = fetcher.run(
        [HELPER, "-q", "--", "download-file", re.sub(r"^file:", "copy:", url), str(path)],
        timeout=HELPER_TIMEOUT,
        what="fetch a repository's key",
        check=False,
    )
    if done.code != 0 or not path.is_file():
        lines = [*done.err.splitlines(), *done.out.splitlines()]
        said = next((line for line in lines if line.startswith(("E:", "Err:"))), "apt gave no reason")
        raise GoldsmithError(
            f"the key can't be fetched: {said}", where=where,
            hint="is the network there? A key may also lie beside image.yml: give `file` instead of `url`",
        )  # fmt: skip


def _export(fingerprint: str, had: Path, where: str) -> str:
    """The one key with this fingerprint, armored. Raises GoldsmithError that names those which are in the file."""
    what = "read a repository's key"
    with gpg_home(None) as gpg:
        shown = run([*gpg, "--with-colons", "--show-keys", had], timeout=60, what=what, check=False)
        # the first fingerprint after a `pub` line is the key's own; those of subkeys follow
        found = re.findall(r"^pub:.*\n(?:.*\n)*?fpr:+([0-9A-F]{40,64}):", shown.out, re.MULTILINE)
        if fingerprint not in found:
            raise GoldsmithError(
                f"holds {' and '.join(found) or 'no OpenPGP key'}, not {fingerprint}", where=where,
                hint="compare with the fingerprint that the publisher gives; nothing was taken",
            )  # fmt: skip
        run([*gpg, "--import", had], timeout=60, what=what)
        return run([*gpg, "--armor", "--export", fingerprint], timeout=60, what=what).out
