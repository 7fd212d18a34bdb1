"""The transformers engine: hooks on a loaded model, so that the user's own ``generate`` follows a decoder.

Hooks: ``manager`` (who holds them), ``forward_hooks`` (what they do), ``attention``; ``arguments`` reads what a pass was
called with; ``engine`` is what sessions, calibration and commands use. Calibration and studies: ``observe``.
"""
