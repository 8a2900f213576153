"""PyTorch: the locked version in every environment, loading the NCCL that is meant for it."""

PACKAGES: tuple[str, ...] = ()
