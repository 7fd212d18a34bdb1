"""A worker class for ``--worker-cls``, where a deployment names its worker instead of relying on the plugin alone.

The plugin's other halves, in front end and scheduler, come from the entry point; without them requests are not prepared
and outcomes not reported, so a worker that finds the entry point switched off refuses to start.
"""

from __future__ import annotations

from typing import Any

from vllm.platforms import current_platform

from reweigh.engines.vllm.config import settings_in
from reweigh.engines.vllm.plugin import require_plugin, tie_worker

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as PlatformWorker
else:
    from vllm.v1.worker.gpu_worker import Worker as PlatformWorker


class ReweighWorker(PlatformWorker):
    """The platform's worker with reweigh; the plugin finds it tied and leaves it so."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if settings_in(self.vllm_config.additional_config) is not None:
            require_plugin()
        tie_worker(self)
