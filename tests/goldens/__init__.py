"""Frozen outputs of every decoder on small checkpoints, and finished folders that other tests open or damage.

When an output changes on purpose, freeze it again with ``python tests/goldens/freeze.py NAME ...`` and say why in the
commit.
"""
