"""CUDA: one runtime library on the node, the locked one."""

PACKAGES: tuple[str, ...] = ()
