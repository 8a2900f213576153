"""Python environments: exactly the locked wheels, at /opt/goldsmith/python/NAME, and nothing else in them."""

# pip itself, as a wheel that needs no installing; the venv module comes with python3
PACKAGES: tuple[str, ...] = ("python3-pip-whl",)
