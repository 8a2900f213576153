#!/bin/sh
# Remove what goldsmith made in this checkout, once no lab is left: the pool, images, trees, the lab's own lock.
set -eu
cd "$(dirname "$0")/.."
state=${GOLDSMITH_STATE:-.goldsmith}
if [ -d "$state/labs" ] && [ -n "$(ls "$state/labs")" ]; then
    echo "error: there are labs in $state/labs: $(ls "$state/labs" | tr '\n' ' ')" >&2
    echo "  remove each: goldsmith lab down --remove --site SITE" >&2
    exit 4
fi
# only what goldsmith makes there: GOLDSMITH_STATE may be a folder that holds other things, too
for name in apt build deploys images labs pool pool-db pool-incoming pool-key pool.lock tests trees trees.lock; do
    rm -rf --one-file-system -- "$state/$name"
done
[ ! -d "$state" ] || rmdir --ignore-fail-on-non-empty -- "$state"
# made on first use, not committed; it names the pool's key, which is gone
rm -f images/lab/image.lock
