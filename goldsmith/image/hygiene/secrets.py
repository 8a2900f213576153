"""Secrets: keys, tokens and password hashes that everybody who has the image could read, and every node would share.

A role's promise excuses none of it: a secret belongs on a node (deploy), not in an image. What a secret is is never
told, only where it lies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from goldsmith.image.hygiene.rule import Expected, Rule, View, is_file, is_folder, name_of

# Where configuration and people's files are. Not /usr: packages own it, and ship test vectors.
PLACES = ("/etc", "/root", "/home", "/opt", "/srv", "/usr/local", "/var/lib/dkms", "/var/lib/shim-signed", "/boot",
          "/var/lib/cloud", "/var/spool", "/var/cache/debconf")  # fmt: skip
# Locked wheels, whose digests are known: the same test vectors.
_PACKAGES = ("/site-packages/", "/dist-packages/")

# A key has its body: a script or a manual that names the first line has none.
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\s|\\n)+(?:[A-Z][\w-]+: [^\n]*\n\s*)*[A-Za-z0-9+/=]{16}"
    r"|PuTTY-User-Key-File-\d: "
)
_TOKEN = re.compile(
    r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,}|glpat-[\w-]{20,}"
    r"|xox[abprs]-[\w-]{20,}|hf_[A-Za-z]{30,}|nvapi-[\w-]{40,}|AIza[\w-]{35}|npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{50,}"
    r"|hvs\.[\w-]{24,})(?![\w-])"
    r"|aws_secret_access_key\W{1,4}[A-Za-z0-9/+=]{40}|\bAccountKey=[A-Za-z0-9/+]{60,}={0,2}"
)
_LOGIN = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"'<>]*:[^\s/@\"'<>${}]+@[\w\[]")

# Files whose every line may be one: what, in a line of which file.
_LINES: tuple[tuple[re.Pattern[str], re.Pattern[str], str], ...] = tuple(
    (re.compile(path), re.compile(line), what)
    for path, line, what in (
        (r".*/\.?netrc|/etc/apt/auth\.conf(\.d/.*)?", r"\bpassword\s+\S", "a password"),
        (
            r".*/\.?(docker|containers)/(config|auth)\.json|.*/\.dockercfg",
            r'"(auth|identitytoken|password)"\s*:\s*"\S',
            "a registry's login",
        ),
        (r".*/\.(git-credentials|vault-token|pgpass|my\.cnf|pypirc)|.*/\.aws/credentials", r"\S{8}", "a login"),
        (
            r".*/(\.cache/)?huggingface/token|.*/\.huggingface/token|.*/\.ngc/config|.*/enroot/\.credentials",
            r"\S{8}",
            "a token",
        ),
        (r".*/\.npmrc", r"_(auth|authToken|password)\s*=", "a login"),
        (r".*/(\.kube/config|kubernetes/.*\.conf)", r"(client-key-data|token|password):\s*\S", "a cluster's key"),
        (
            r".*/gcloud/(credentials\.db|.*\.json)|.*/\.azure/(accessTokens\.json|msal_token_cache.*)",
            r"\S",
            "a cloud's login",
        ),
        (
            r"/etc/NetworkManager/system-connections/.*|/etc/wpa_supplicant/.*",
            r"\b(psk|password|wep-key\d)\s*=\s*\S",
            "a network's password",
        ),
        (r"/etc/(wireguard/.*|systemd/network/.*\.netdev)", r"(PrivateKey|PresharedKey)\s*=\s*\S", "a tunnel's key"),
        (r"/etc/chrony/chrony\.keys|/etc/ntp(sec)?/.*\.keys", r"^\d+\s+\S", "a key"),
        (r"/etc/(ipsec\.secrets|ppp/(chap|pap)-secrets|postfix/sasl_passwd)", r"^[^#\s]\S*\s+\S", "a password"),
        (r"/etc/exim4/passwd\.client", r"^[^#\s]+:[^#\s]+:\S", "a password"),
        (r"/etc/ceph/.*\.keyring", r"\bkey\s*=\s*\S", "a key"),
        (r"/etc/iscsi/iscsid\.conf", r"\.password(_in)?\s*=\s*\S", "a password"),
        (r"/etc/slurm/slurmdbd\.conf", r"(?i)^StoragePass\s*=\s*\S", "a password"),
    )
)
# Binary ones, and those that are one whatever is in them. munge's package makes one as it is installed.
_FILES = re.compile(
    r"/etc/(munge/munge\.key|slurm/(slurm|jwt.*|jwks)\.key|krb5\.keytab|corosync/authkey|bind/rndc\.key|rndc\.key"
    r"|ssl/private/.+|beegfs/.*[Aa]uth.*)|/root/krb5\.keytab|.*\.(p12|pfx|kdbx|keytab)"
    r"|/var/lib/(dkms/mok\.key|shim-signed/mok/.*\.priv)|.*/\.ssh/id_\w+|.*/private-keys-v1\.d/.+\.key|.*/\.Xauthority"
)


def _files(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.below(*PLACES, "/var/lib"):
        if not is_folder(entry) and entry.stat.st_size and _FILES.fullmatch(entry.path):
            yield entry.path, "is a key"


def _contents(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.below(*PLACES):
        if not is_file(entry) or not entry.stat.st_size or any(one in entry.path for one in _PACKAGES):
            continue
        text = view.read(entry.path)
        if _PRIVATE_KEY.search(text) and not _FILES.fullmatch(entry.path):
            yield entry.path, "holds a private key"
        if _TOKEN.search(text):
            yield entry.path, "holds an access key or a token"
        # an example in a comment is none
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", ";", "//"))]
        if "://" in text and any(_LOGIN.search(line) for line in lines):
            yield entry.path, "holds an address with a password"
        for path, pattern, what in _LINES:
            if path.fullmatch(entry.path) and any(pattern.search(line) for line in lines):
                yield entry.path, f"holds {what}"


def _passwords(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for path in ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/passwd", "/etc/passwd-",
                 "/etc/security/opasswd"):  # fmt: skip
        for line in view.lines(path):
            name, _, rest = line.partition(":")
            password = rest.split(":")[0]
            if path == "/etc/security/opasswd":
                yield path, f"holds an old password of {name}"
            elif not password and "gshadow" not in path:
                yield path, f"{name} logs in without a password"
            elif password not in ("", "x") and not password.startswith(("!", "*")):
                yield path, f"{name} has a password"
            elif re.match(r"!+\$", password):
                yield path, f"{name} has a password, which is locked and can still be read"


def _authorized(view: View, expected: Expected) -> Iterator[tuple[str, str]]:
    for entry in view.below("/root", "/home", "/var/lib", "/etc/ssh"):
        name = name_of(entry)
        named = name in ("authorized_keys", "authorized_keys2") and entry.path not in expected.files
        if named and view.lines(entry.path):
            yield entry.path, "lets somebody in, and no role promises it"


_REMEDY = "take it off the image; what a node needs comes to it with deploy, or from the site's own vault"
RULES = (
    Rule("secret-file", "no key is in an image: who has the image has it, and all nodes share it", _REMEDY, _files),
    Rule("secret", "no private key, token or login is in an image: who has the image has it", _REMEDY, _contents),
    Rule("password", "no account has a password, or none to type: it would be every node's",
         "lock the account (`usermod -p '!'`) in the role that sets it; sites set passwords with deploy", _passwords),
    Rule("authorized-keys", "nobody's ssh key opens all nodes: packer and cloud images leave theirs",
         "promise it as a File, or remove it in the role that leaves it", _authorized),
)  # fmt: skip
