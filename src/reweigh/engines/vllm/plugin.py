"""The entry point: ties reweigh to vLLM's front end, scheduler and workers, in whatever process each of them runs.

Each tie is made on the one object that was configured for it, when that object has been made, and at most once. Without a
``reweigh`` section nothing is tied; only a request that asks for edits is refused then, rather than ignored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from reweigh.engines.vllm import frontend
from reweigh.engines.vllm.config import KEY, settings_in
from reweigh.errors import UnsupportedError

GROUP = "vllm.general_plugins"
TIED = "_reweigh_tied"


def register() -> None:
    """Called by vLLM in each of its processes (entry point in ``GROUP``); repeated calls change nothing.

    An engine or worker process loads plugins while its outermost object is already being made, so the ties are to what
    is made next: scheduler and worker.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.input_processor import InputProcessor
    from vllm.v1.worker.worker_base import WorkerBase

    _after(EngineArgs, "create_engine_config", lambda args, config: frontend.check(config))
    _after(InputProcessor, "__init__", lambda processor, _: frontend.tie(processor))
    _after(Scheduler, "__init__", lambda scheduler, _: _tie_scheduler(scheduler))
    _after(WorkerBase, "__init__", lambda worker, _: tie_worker(worker))


def require_plugin() -> None:
    """Refuse to start where vLLM would not load this plugin and nothing would be edited or observed."""
    from vllm import envs

    installed = any(entry.name == KEY for entry in entry_points(group=GROUP))
    if installed and (envs.VLLM_PLUGINS is None or KEY in envs.VLLM_PLUGINS):
        return
    if installed:
        raise UnsupportedError(
            "vLLM does not load reweigh's plugin here: VLLM_PLUGINS leaves it out",
            hint="name reweigh in VLLM_PLUGINS, or unset it",
        )
    raise UnsupportedError(
        f"vLLM does not load reweigh's plugin here: no installed package has the entry point {KEY!r} of {GROUP}",
        hint="pip install 'reweigh[vllm]' in vLLM's environment (pip install -e . for a checkout); "
        "a folder on PYTHONPATH brings no entry point",
    )


def _after(owner: Any, name: str, then: Callable[[Any, Any], None]) -> None:
    """Let ``then(self, result)`` follow each call of a method; a method that is followed already is left alone."""
    original = getattr(owner, name)
    if getattr(original, TIED, False):
        return

    @functools.wraps(original)
    def followed(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        then(self, result)
        return result

    setattr(followed, TIED, True)
    setattr(owner, name, followed)


def _tie_scheduler(scheduler: Any) -> None:
    settings = settings_in(scheduler.vllm_config.additional_config)
    if settings is not None and not settings.observe:
        from reweigh.engines.vllm.scheduling import tie

        tie(scheduler, settings)


def tie_worker(worker: Any) -> None:
    """Make a worker read evidence and edit, if its configuration says so and it does not yet."""
    settings = settings_in(worker.vllm_config.additional_config)
    if settings is not None and not getattr(worker, TIED, False):
        from reweigh.engines.vllm.working import tie

        setattr(worker, TIED, True)
        tie(worker, settings)
