"""A server with the OpenAI API and an inspector page; base and edited answers share one model.

A request passes ``gate``, reaches a route of ``app``, is read by ``wire`` and made ready by ``prepare``. ``chat`` turns it
into rows; ``scheduler`` queues them and ``batch`` decodes them together, each with its own beta, sampling and length;
``recall`` remembers the evidence of their pictures; ``chat`` puts what they write into OpenAI's objects. ``inspect`` answers
the page. docs/serve.md is the contract. Needs the extra ``serve``.
"""
