"""vLLM's worker with reweigh; the front end names it in the configuration of an engine that asks for edits."""

from __future__ import annotations

from vllm.platforms import current_platform
from vllm.utils.gpu_sync_debug import with_gpu_sync_check

from reweigh_vllm.installed import Reweighing

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as PlatformWorker
else:
    from vllm.v1.worker.gpu_worker import Worker as PlatformWorker


class ReweighWorker(Reweighing, PlatformWorker):
    """The platform's worker, which reads evidence and edits; VLLM_GPU_SYNC_CHECK covers that, too."""

    execute_model = with_gpu_sync_check(Reweighing.execute_model)
