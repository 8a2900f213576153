"""Apt's sources and the clock. Runs on the node: Python 3.8, standard library only."""

from __future__ import annotations

import re
from typing import Any, Iterator


def probe(run: Any) -> dict[str, Any]:
    """sources: the enabled ones, [{file, types, uris, suites}], URIs without credentials. clock: see below."""
    return {"sources": list(sources(run)), "clock": clock(run)}


def sources(run: Any) -> Iterator[dict[str, Any]]:
    """Of sources.list and sources.list.d, as apt reads it: other endings are ignored there."""
    for path in ["/etc/apt/sources.list", *run.glob("/etc/apt/sources.list.d/*.list")]:
        for line in (run.read(path) or "").splitlines():
            words = re.sub(r"\[[^\]]*\]", "", line.split("#", 1)[0]).split()
            if len(words) >= 3 and words[0] in ("deb", "deb-src"):
                yield {"file": path, "types": [words[0]], "uris": [without_secrets(words[1])], "suites": [words[2]]}
    for path in run.glob("/etc/apt/sources.list.d/*.sources"):
        for stanza in re.split(r"\n[ \t]*\n", run.read(path) or ""):
            fields = deb822(stanza)
            if fields.get("uris") and fields.get("enabled", "yes").lower() not in ("no", "false", "0"):
                yield {
                    "file": path,
                    "types": fields.get("types", "").split(),
                    "uris": [without_secrets(uri) for uri in fields["uris"].split()],
                    "suites": fields.get("suites", "").split(),
                }


def deb822(stanza: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t") and name:
            fields[name] += " " + line.strip()
        elif ":" in line:
            name, value = (part.strip() for part in line.split(":", 1))
            name = name.lower()
            fields[name] = value
    return fields


def without_secrets(uri: str) -> str:
    """A private mirror's URL holds its password: it must not reach a report."""
    return re.sub(r"^([a-z+]+://)[^/@]*@", r"\1", uri).split("?", 1)[0]


def clock(run: Any) -> dict[str, Any]:
    """{"applicable": False} where the clock is another's; else synchronised, offset_s, source, or an error."""
    if run.target != "live" or run.container:
        return {"applicable": False}
    done = run(["chronyc", "-n", "-c", "tracking"], timeout=2)
    fields = done.out.strip().split(",")
    if done.code != 0 or len(fields) < 14:
        return {"applicable": True, "error": (done.err or done.out).strip() or f"chronyc: exit {done.code}"}
    return {
        "applicable": True,
        "synchronised": fields[13] != "Not synchronised",
        "source": fields[1],
        "stratum": int(fields[2]),
        "offset_s": float(fields[4]),
    }
