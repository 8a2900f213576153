"""Fetching wheels by the address that the index gives: resumed where it broke, hashed on the way, renamed when right.

Proxies come from the environment (HTTPS_PROXY, NO_PROXY), credentials from netrc or from UV_INDEX_URL and its like, as
uv takes them. Facts: urllib.request, netrc(5), RFC 9110 on ranges.
"""

from __future__ import annotations

import base64
import http.client
import netrc
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from goldsmith.credentials import hide
from goldsmith.errors import GoldsmithError

TIMEOUT = 60.0  # seconds that a server may say nothing
TRIES = 4
_CHUNK = 1 << 20
_TRANSIENT = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


def download(
    url: str, target: Path, *, digest: str, size: int, name: str, progress: Callable[[int], None] = lambda _: None
) -> None:
    """Bring the file to `target`, whose folder is there.

    progress: gets the bytes of each piece. Raises GoldsmithError that names the wheel: it can't be had, or it is
    another file than the locked one; then there is nothing at `target`.
    """
    partial = target.with_name(f"{target.name}.part")
    try:
        _bring(url, partial, size, name, progress)
        found, length = sha256(), partial.stat().st_size
        with partial.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found.update(chunk)
        if length != size or found.hexdigest() != digest:
            raise GoldsmithError(
                f"{name} isn't the file that was locked: {length} bytes with sha256 {found.hexdigest()}, "
                f"locked {size} bytes with {digest}",
                where=hide(url),
                hint="it was changed on the index or on the way; nothing of it was kept",
            )
        partial.chmod(0o644)
        partial.rename(target)
    except OSError as error:
        raise GoldsmithError(f"{name} can't be written: {error.strerror or error}", where=str(target.parent)) from None
    finally:
        partial.unlink(missing_ok=True)


def _bring(url: str, partial: Path, size: int, name: str, progress: Callable[[int], None]) -> None:
    reason: object = ""
    partial.unlink(missing_ok=True)
    for attempt in range(TRIES):
        if attempt:
            time.sleep(2**attempt / 2)
        have = partial.stat().st_size if partial.exists() else 0
        try:
            with _open(url, {"Range": f"bytes={have}-"} if have else {}) as answer:
                # a server that knows no ranges begins anew
                more = have and getattr(answer, "status", 200) == 206
                with partial.open("ab" if more else "wb") as file:
                    while chunk := answer.read(_CHUNK):
                        file.write(chunk)
                        progress(len(chunk))
                        if file.tell() > size:  # another file: its end is of no interest
                            return
            if partial.stat().st_size >= size:
                return
            reason = f"it ended after {partial.stat().st_size} of {size} bytes"
        except urllib.error.HTTPError as error:
            reason = f"{error.code} {error.reason}"
            if error.code in (401, 403, 404, 410):
                break
        except _TRANSIENT as error:
            reason = _reason(error)
            if url.startswith("file:"):
                break
    raise GoldsmithError(
        f"{name} can't be fetched: {reason}", where=hide(url),
        hint="check the network, the proxy and the index's credentials (netrc), and run it again",
    )  # fmt: skip


def size_of(url: str) -> int:
    """The bytes of a file that an index lists without them. Raises GoldsmithError."""
    try:
        with _open(url, {}, method="HEAD") as answer:
            size = answer.headers.get("Content-Length")
    except (urllib.error.HTTPError, *_TRANSIENT) as error:
        reason = _reason(error)
        raise GoldsmithError(f"its size can't be had: {reason}", where=hide(url)) from None
    if size is None:
        raise GoldsmithError("the server doesn't say how large it is", where=hide(url))
    return int(size)


def _reason(error: Exception) -> str:
    if isinstance(error, http.client.InvalidURL):  # its own words have a piece of the address, perhaps of a password
        return "its address isn't valid"
    return hide(str(getattr(error, "reason", error))) or type(error).__name__


def _open(url: str, headers: dict[str, str], method: str = "GET") -> http.client.HTTPResponse:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "file"):
        raise GoldsmithError(f"an index gives the address {parts.scheme}:…, which isn't fetched")
    plain = url.replace(f"{parts.netloc.rpartition('@')[0]}@", "", 1) if "@" in parts.netloc else url
    # pieces are as they are: a hash of what a server compressed on the way fits nothing
    request = urllib.request.Request(plain, headers={"Accept-Encoding": "identity", **headers}, method=method)
    if login := _credentials(url):
        # not to whoever the index redirects to
        request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    return urllib.request.urlopen(request, timeout=TIMEOUT)  # type: ignore[no-any-return]


def _credentials(url: str) -> str | None:
    """user:password for the address's host."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return None
    indexes = " ".join(os.environ.get(name, "") for name in (
        "UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")).split()  # fmt: skip
    for one in (parts, *(urlsplit(one.split("=", 1)[-1] if "=http" in one else one) for one in indexes)):
        if one.hostname == parts.hostname and _port(one) == _port(parts) and one.username:
            return f"{unquote(one.username)}:{unquote(one.password or '')}"
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    try:
        found = netrc.netrc(path).authenticators(parts.hostname or "")
    except (OSError, netrc.NetrcParseError):
        return None
    return f"{found[0]}:{found[2]}" if found else None


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:  # its own words have what stands there, which may be a password's piece
        return -1
