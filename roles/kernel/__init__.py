"""The locked kernel runs, its modules are built, and its modules, command line and sysctls are those declared."""

PACKAGES: tuple[str, ...] = ()
