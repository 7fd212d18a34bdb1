"""The transformers engine: hooks on a loaded model, so that the user's own ``generate`` follows a decoder.

Hooks and forward passes: ``session`` (what users hold), ``tap``, ``passes``, ``hooks``, ``shadow``, ``compiled``,
``arguments``. The sequence under way: ``prompt``, ``trail``, ``continuation``, ``follow``. Evidence: ``gather``,
``recall``, ``pairing``, ``parity``. One-call functions: ``measure``, ``check``, ``examine``. For decoders that
edit attention: ``attention``. Calibration and studies: ``observe``, ``trajectory``, ``answers``.
"""
