"""What several rivals share.

Formulas: ``rules`` (on logits), ``layers`` (layer sets and early exits). A second branch: ``contrast`` (a decoder with one),
``branch`` (its passes), ``inputs`` (its prompt). Edits inside the model: ``stream``, ``attention``. Options: ``options``
(their check), ``entities`` (words), ``steering`` (vectors). Readings: ``description``, ``confidence``.
"""
