"""`python -m goldsmith` is `goldsmith`."""

from goldsmith.cli import main

main()
