"""Shipped to nodes: Python 3.8 or later, standard library only (tests/unit/test_probe_bundle.py holds that).

Nothing here imports anything of goldsmith when it runs; a type checker alone sees those imports.
"""
