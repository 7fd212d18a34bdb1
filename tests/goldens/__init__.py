"""Frozen outputs: every decoder on small checkpoints (core) and every command on the embedded world (outer).

Check with ``pytest tests/goldens`` (add ``-m ""`` for the slow part). When an output changes on purpose, freeze it again
with ``python tests/goldens/freeze.py NAME ...`` and say why in the commit. Everything goes through ``import reweigh`` and
``python -m reweigh``: when a JSON layout or a command changes, adapt ``commands.py`` and keep the frozen values.
"""
