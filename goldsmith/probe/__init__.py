"""The probe: what a node says of itself. bundle.py packs node/ and the roles' probes into one script."""
