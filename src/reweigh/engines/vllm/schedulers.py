"""vLLM's schedulers with reweigh; the front end names one in the configuration of an engine that asks for edits."""

from __future__ import annotations

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from reweigh.engines.vllm.scheduling import Telling


class ReweighScheduler(Telling, Scheduler):
    """The plain scheduler, which tells outcomes."""


class ReweighAsyncScheduler(Telling, AsyncScheduler):
    """The scheduler of asynchronous engines, which tells outcomes."""
