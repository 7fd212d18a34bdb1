"""ReWEIGH inside vLLM: evidence read in the worker's own prefill, edits in its sampler. Needs the extra ``vllm``.

``plugin`` is the entry point. Front end: ``config``, ``frontend``, ``refusals``, ``pairing``, ``outputs``, ``shown``,
``chats``, ``metrics``. Scheduler: ``schedulers``, ``scheduling``, ``report``. Worker: ``worker``, ``working``, ``served``,
``taps``, ``capture``, ``lens``, ``store``, ``processor``. Calibration: ``observe``.
"""
