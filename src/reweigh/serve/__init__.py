"""A server with the OpenAI API and an inspector page; base and edited answers share one model.

Requests come in through ``app`` (the wire form is in ``wire``), are prepared by ``prepare``, wait in ``scheduler`` and are
decoded together by ``batch``, each row with its own beta, sampling and length. ``inspect`` answers the page. docs/serve.md
is the contract. Needs the extra ``serve``.
"""
