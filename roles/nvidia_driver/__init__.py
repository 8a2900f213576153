"""The NVIDIA driver is one version: kernel module, libraries, tools; a node without a GPU is as healthy."""

PACKAGES = ("kmod",)
