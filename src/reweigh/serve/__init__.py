"""A server with the OpenAI API and an inspector page; base and edited answers share one model.

A request arrives through ``gate`` and ``app``, is read by ``parse`` (``wire`` has its format) and made ready by ``prepare``.
``chat`` turns it into rows, ``scheduler`` lets them wait, ``batch`` decodes them together, each with its own beta, sampling
and length, and ``reply`` sends what they write. ``inspect`` answers the page. docs/serve.md is the contract. Needs the
extra ``serve``.
"""
