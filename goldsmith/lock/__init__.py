"""Locking an image: which packages it comes to, exactly, and the local pool that they install from.

sources, keys, apt, index, keep, depends, resolve: from image.yml to exact packages, chosen by apt itself.
fetch, filling, contents, signing, pool, serve: the debs, what is in them, and the signed repository over them.
locking: the whole, as `goldsmith lock` does it.
"""

from __future__ import annotations

from goldsmith.lock.locking import fill, lock_fits, lock_image, verify
from goldsmith.lock.pool import Pool
from goldsmith.lock.serve import serve, serving
from goldsmith.lock.tools import LAB_TOOLS, TOOLS, require_tools

__all__ = [
    "LAB_TOOLS",
    "TOOLS",
    "Pool",
    "fill",
    "lock_fits",
    "lock_image",
    "require_tools",
    "serve",
    "serving",
    "verify",
]
