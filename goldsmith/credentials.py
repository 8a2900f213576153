"""Keeping credentials out of what is shown: one function for every text, one for the names of fields."""

from __future__ import annotations

import re

# `http:/` too: a slash forgotten is no reason to show a password
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/+")
_SECRET_NAME = re.compile(r"pass(word|wd|phrase)?\b|secret|token|credential|auth|login|api_?key|\buri\b|\burl\b|index",
                          re.IGNORECASE)  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def hide(text: str) -> str:
    """The text with the users, passwords, queries and fragments of all addresses in it left out.

    What can't be told apart (`http://bob:p/SECRET@host`: a path, or a password with a slash?) is hidden whole.
    """
    # a password with blanks: from `user:` that no port follows to the last @ of the line
    text = re.sub(r"(:/+)[^\s/@:\[]*:(?!\d{1,5}(?:\D|$))[^\n@]*\s[^\n]*@", r"\1…@", text)
    return re.sub(r"\S+", lambda word: _bare(word[0]), text)


def _bare(word: str) -> str:
    scheme = _SCHEME.search(word)
    start, rest = (word[: scheme.end()], word[scheme.end() :]) if scheme else ("", word)
    before, at, after = rest.rpartition("@")
    if at and scheme:
        if re.search(r"[/?#@…]", before):
            return f"{start}…"
        rest = after
    elif at and ":" in before and after:
        rest = f"…@{after}"
    return start + re.sub(r"[?#].*" if scheme else r"\?.*=.*", "?…", rest)


def is_secret(name: str, value: object) -> bool:
    """Whether a field's value must not be shown at all: by its name, or because it may be an address with a login."""
    return bool(_SECRET_NAME.search(name)) or (isinstance(value, str) and ("@" in value or "://" in value))


def short(text: str, most: int = 200) -> str:
    """One line of a bounded length, of a text that somebody else wrote: no credentials, nothing a terminal obeys."""
    text = _CONTROL.sub("�", hide(text))
    return text if len(text) <= most else f"{text[: most - 1]}…"
