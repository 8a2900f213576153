#!/bin/sh
# Resolve pyproject.toml's dependencies for every platform and Python from 3.11 on, with hashes, into requirements.lock.
# No index, host or path of this machine gets into the file.
set -eu
cd "$(dirname "$0")/.."
new=$(mktemp)
trap 'rm -f "$new"' EXIT
cat >"$new" <<'END'
# Every Python package of goldsmith and its development tools, exact and hashed; made from pyproject.toml by
# `make requirements`, never edited by hand. `make setup` installs it with pip --require-hashes.
END
.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml >>"$new" ||
    { echo "error: the requirements can't be resolved: is the network there?" >&2; exit 4; }
if cmp -s "$new" requirements.lock; then
    echo "requirements.lock is up to date"
else
    # a rename: whoever reads it meanwhile sees the old one or the new one
    cp "$new" .requirements.lock.new && mv .requirements.lock.new requirements.lock
    echo "requirements.lock is renewed; look at git diff, then: make setup test"
fi
