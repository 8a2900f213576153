"""What a build leaves behind: logs, histories, caches, and the building machine's own configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator

from goldsmith.image.hygiene.rule import Expected, Rule, View, is_file, is_folder, is_link, name_of

_HISTORY = re.compile(r"\.(\w+_)?history|\.lesshst|\.viminfo|\.\w+-hsts|\.bash_sessions|\.sudo_as_admin_successful")
_PROXY = re.compile(r"Acquire::[\w:]*(Proxy|Cacher)|^\s*(export\s+)?(https?|ftp|all)_proxy\s*=", re.IGNORECASE)
# Names that many machines have, and words of configuration files: found only where a file is about hosts' names.
_GENERIC = re.compile(
    r"localhost|debian|ubuntu|linux|root|admin|server|client|node|host|build(er)?|master|main|runner|test|docker|gpu|"
    r"\w{1,4}"
)
_ABOUT_NAMES = ("/etc/hosts", "/etc/mailname", "/etc/hostname")


def _logs(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.below("/var/log"):
        if is_file(entry) and (entry.stat.st_size or "/journal/" in entry.path) and entry.path not in view.owners:
            yield entry.path, "is there"
    for entry in view.below("/var/lib/dkms"):
        if is_file(entry) and entry.path.endswith(".log"):
            yield entry.path, "is there"


def _histories(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    # homes are anywhere: /var/lib/postgresql too
    for entry in view.below("/root", "/home", "/var", "/srv", "/opt", "/etc"):
        if _HISTORY.fullmatch(name_of(entry)) and entry.path not in expected.files:
            yield entry.path, "is there"


def _apt(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.below("/var/lib/apt/lists"):
        if is_file(entry) and entry.stat.st_size:
            yield entry.path, "is there"
    for entry in view.below("/var/cache/apt"):
        if is_file(entry) and entry.path.endswith((".deb", ".bin")):
            yield entry.path, "is there"


def _temporary(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.below("/tmp", "/var/tmp", "/run", "/var/cache/goldsmith"):
        if not is_folder(entry) and entry.path not in expected.files and entry.path not in view.owners:
            yield entry.path, "is there"


def _policy(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    path = "/usr/sbin/policy-rc.d"
    if path in view.entries and path not in expected.files and path not in view.owners:
        yield path, "is there, and no package has brought it"


def _sources(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.below("/etc/apt"):
        if entry.path in expected.files:
            continue
        listed = entry.path.startswith("/etc/apt/sources.list") and entry.path.endswith((".list", ".sources"))
        if listed and view.lines(entry.path):
            yield entry.path, "names a source, and no role promises it"
        elif any(_PROXY.search(line) for line in view.lines(entry.path, comments="#/")):
            yield entry.path, "names a proxy"
    path = "/etc/environment"
    if path not in expected.files and any(_PROXY.search(line) for line in view.lines(path)):
        yield path, "names a proxy"


def _resolver(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    entry = view.entries.get("/etc/resolv.conf")
    if entry is None or entry.path in expected.files or is_link(entry):
        return
    if view.lines(entry.path):
        yield entry.path, "names another machine's name servers"


def _builder(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    words = [word for word in expected.builder if word]
    if not words:
        return
    specific = [word for word in words if not _GENERIC.fullmatch(word.lower())]
    everywhere, names = _any_of(specific), _any_of(words)
    for entry in view.below("/etc"):
        pattern = names if entry.path in _ABOUT_NAMES else everywhere
        if pattern and entry.path not in expected.files and (found := pattern.search(view.read(entry.path))):
            yield entry.path, f"names {found[0]}"


def _any_of(words: list[str]) -> re.Pattern[str] | None:
    inner = "|".join(map(re.escape, words))
    return re.compile(rf"(?<![\w-])(?:{inner})(?![\w-])") if words else None


RULES = (
    Rule("log", "no log of the build: it tells of another machine, and is no two times the same",
         "identity.strip empties /var/log: find what wrote there afterwards", _logs),
    Rule("history", "no shell or editor history: commands hold passwords", "remove it in the role that leaves it",
         _histories),
    Rule("apt-cache", "no package lists and no debs: they are stale at once, and hundreds of megabytes",
         "use the package transaction, which keeps its own elsewhere", _apt),
    Rule("temporary", "nothing in folders for temporary files", "remove it in the role that leaves it", _temporary),
    Rule("policy-rc.d", "services may start: with the build's policy-rc.d left in place no package can start its own",
         "remove /usr/sbin/policy-rc.d in the role that leaves it", _policy),
    Rule("apt-source", "the roles' sources and proxies alone: another one is how a same-named, higher package comes "
         "to a node (aws/aws-parallelcluster#3034)", "promise it as a File, or remove it", _sources),
    Rule("resolver", "no name servers of the building machine", "remove it, or promise it as a File", _resolver),
    Rule("builder", "nothing in /etc names the machine that built it", "find the role that writes it", _builder),
)  # fmt: skip
