"""Every package exactly as locked, from our own pool alone; nothing updates itself; limits and time are right."""

# The probe runs on the node's python3; kmod answers which module is on disk.
PACKAGES = ("chrony", "kmod", "openssh-server", "python3")
