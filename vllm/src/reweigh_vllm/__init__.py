"""ReWEIGH inside vLLM: evidence read in the worker's own prefill, edits in its sampler.

``plugin`` is the entry point. Front end: ``settings``, ``refusals``, ``table``, ``frontend``, ``outputs``, ``streams``.
Scheduler: ``schedulers``, ``report``. Worker: ``worker``, ``installed``, ``taps``, ``capture``, ``reading``,
``processor``. ``core`` lists everything that is taken from the package ``reweigh``.
"""

__version__ = "0.1.0"
