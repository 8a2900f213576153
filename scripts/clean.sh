#!/bin/sh
# Remove what goldsmith made in this checkout, once no lab is left: state, virtual environment, caches.
set -eu
cd "$(dirname "$0")/.."
state=${GOLDSMITH_STATE:-.goldsmith}
if [ -d "$state/labs" ]; then
    echo "error: there are labs in $state/labs: $(ls "$state/labs" | tr '\n' ' ')" >&2
    echo "  remove each: goldsmith lab down --remove --site SITE" >&2
    exit 4
fi
# only what goldsmith makes there: GOLDSMITH_STATE may be a folder that holds other things, too
for name in apt build images pool pool-db pool-incoming pool-key pool.lock tests trees trees.lock; do
    rm -rf --one-file-system -- "$state/$name"
done
[ ! -d "$state" ] || rmdir --ignore-fail-on-non-empty -- "$state"
rm -rf --one-file-system -- .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
find . -name __pycache__ -type d -prune -exec rm -rf -- {} +
