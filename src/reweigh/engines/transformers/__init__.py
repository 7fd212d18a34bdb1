"""The transformers engine: hooks on a loaded model, so that the user's own ``generate`` follows a decoder.

Hooks: ``manager`` (who holds them), ``forward_hooks`` (what they do), ``hooks``, ``shadow``, ``compiled``, ``attention``.
Passes: ``prompt``, ``arguments``, ``caches``. What users hold: ``session``. Tables and evidence: ``pairing``, ``recall``,
``parity``. One-call functions: ``measure``, ``check``, ``examine``. Calibration and studies: ``observe``, ``trajectory``,
``answers``, ``words``.
"""
