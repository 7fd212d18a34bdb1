"""vLLM's schedulers with reweigh; the front end names one in the configuration of an engine that asks for edits."""

from __future__ import annotations

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from reweigh_vllm.report import Reporting


class ReweighScheduler(Reporting, Scheduler):
    """The plain scheduler, which reports outcomes."""


class ReweighAsyncScheduler(Reporting, AsyncScheduler):
    """The scheduler of asynchronous engines, which reports outcomes."""
