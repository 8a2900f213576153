"""NCCL: one library on the node, the locked one byte for byte, configured by /etc/nccl.conf."""

PACKAGES: tuple[str, ...] = ()
