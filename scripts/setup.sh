#!/bin/sh
# Make .venv in this checkout, with every package that requirements.lock names and goldsmith itself.
# Done again only when the lock, pyproject.toml or the Python has changed; one that was interrupted is redone.
# Exits with 0, or with 4 and one sentence that says what to do.
set -eu
cd "$(dirname "$0")/.."
stamp=.venv/goldsmith-setup
log=.venv/goldsmith-setup.log

fail() {
    printf 'error: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf '  %s\n' "$2" >&2
    exit 4
}

# A Python that is new enough, newest first only if `python3` isn't: what the system has is what it keeps patched.
find_python() {
    for name in python3 python3.11 python3.12 python3.13 python3.14; do
        if command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

# What decides about .venv: when it is the same as at the last setup, there is nothing to do.
wanted() {
    "$python" - <<'END'
import hashlib, os, sys
digest = hashlib.sha256(f"{sys.version} {os.getcwd()}".encode())
for name in ("requirements.lock", "pyproject.toml", "scripts/setup.sh"):
    digest.update(open(name, "rb").read())
print(digest.hexdigest())
END
}

# Debian and Ubuntu have venv and pip's wheel in a package of its own.
need_venv() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null && return
    version=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        fail "$python lacks its venv module." "As root: apt-get install $version (or your system's package of it)"
    fi
    printf "%s lacks its venv module: installing %s with apt-get\n" "$python" "$version"
    # the first try needs no network where the lists and the package are there
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install "$version" >/dev/null 2>&1 ||
        { apt-get -qq update >/dev/null 2>&1 &&
            DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install "$version" >/dev/null; } ||
        fail "$version can't be installed." "Is the network there, and are this machine's apt sources right? Then: apt-get install $version"
}

# Run a step with its output in the log, and a sign of life.
step() {
    title=$1
    shift
    [ -t 2 ] && printf '  … %s\r' "$title" >&2 || printf '  … %s\n' "$title" >&2
    started=$(date +%s)
    if ! "$@" >>"$log" 2>&1; then
        printf '  ✗ %s\n' "$title" >&2
        return 1
    fi
    printf '  ✓ %s %s s\n' "$title" "$(($(date +%s) - started))" >&2
}

python=$(find_python) || fail "goldsmith needs Python 3.11 or newer, and this machine has none." \
    "Install it (Debian 12, Ubuntu 24.04 or newer have it: apt-get install python3 python3-venv)."

# Two setups at once (make lab and make test): the second waits. The lock is on the folder: no file is left.
if command -v flock >/dev/null 2>&1; then
    exec 9<scripts
    flock 9
fi

[ -f requirements.lock ] || fail "requirements.lock is missing." "Restore it: git checkout requirements.lock"
key=$(wanted)
if [ -x .venv/bin/goldsmith ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ]; then
    exit 0
fi

need_venv
# The stamp goes first and comes back last: whatever interrupts us, the next run begins anew.
rm -f "$stamp"
printf 'Setting up .venv from requirements.lock\n' >&2
# --clear only where it isn't ours to keep: packages of the right version stay
if [ ! -x .venv/bin/pip ] || ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    rm -rf .venv
    mkdir .venv
    step "make .venv" "$python" -m venv .venv ||
        fail ".venv can't be made: $(tail -n 1 "$log")" "Is the disk full? The whole story is in $log."
fi
: >"$log"
pip() {
    .venv/bin/python -m pip --disable-pip-version-check --no-input "$@"
}
step "install the packages of requirements.lock" pip install --require-hashes -r requirements.lock || {
    reason=$(grep -E '^ERROR:' "$log" | head -n 1)
    if grep -qiE 'connection|resolution|unreachable|timed out|retries|from versions: none' "$log"; then
        fail "the Python packages can't be fetched: is the network there?" "${reason:-The whole story is in $log.}"
    fi
    fail "the Python packages can't be installed." "${reason:-The whole story is in $log.}"
}
step "install goldsmith" pip install --no-deps --no-build-isolation --editable . ||
    fail "goldsmith can't be installed into .venv: $(grep -E '^ *ERROR:|error:' "$log" | head -n 1)" \
        "The whole story is in $log."
printf '%s\n' "$key" >"$stamp"
