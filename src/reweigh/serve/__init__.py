"""A server with the OpenAI API and an inspector page, on one model that base and edited answers share.

Requests come in through ``app`` (the wire form is in ``wire``), are made ready by ``prepare``, wait in ``scheduler`` and are
decoded together by ``batch``, each row with its own beta, sampling and length. ``inspect`` answers the page. docs/serve.md
is the contract. Needs the extra ``serve``.
"""
