"""ReWEIGH inside vLLM: evidence read in the worker's own prefill, edits in its sampler. Needs the extra ``vllm``.

``plugin`` is the entry point. Front end: ``config``, ``refusals``, ``tables``, ``frontend``, ``chats``, ``outputs``.
Scheduler: ``schedulers``, ``report``. Worker: ``worker``, ``working``, ``taps``, ``capture``, ``store``, ``processor``.
"""
