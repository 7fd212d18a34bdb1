"""vLLM's scheduler: carries each request's outcome into its output, and ends requests that are refused."""

from __future__ import annotations

import logging
from typing import Any

from reweigh.engines.vllm.config import Settings
from reweigh.engines.vllm.report import Ledger, tell

logger = logging.getLogger(__name__)


def tie(scheduler: Any, settings: Settings) -> None:
    """Let a scheduler speak of edits in what it hands to the front end."""
    original, ledger = scheduler.update_from_output, Ledger()
    refuses = settings.unedited == "refuse"

    def update_from_output(scheduled: Any, model_output: Any) -> Any:
        step_ms = ledger.note(model_output)
        known = {name: scheduler.requests.get(name) for name in scheduled.num_scheduled_tokens}
        outputs = original(scheduled, model_output)
        for client in outputs.values():
            for output in client.outputs:
                request = known.get(output.request_id)
                told = None if request is None else ledger.of(request)
                if told is None:
                    continue
                tell(output, told, step_ms)
                if refuses and not told["edited"]:
                    _refuse(scheduler, output, told["reason"])
        if scheduled.finished_req_ids:
            ledger.forget(scheduler.requests)
        return outputs

    scheduler.update_from_output = update_from_output


def _refuse(scheduler: Any, output: Any, reason: str) -> None:
    """End a request that could not be edited with an error instead of an unedited text."""
    from vllm.v1.engine import FinishReason
    from vllm.v1.request import RequestStatus

    logger.warning("reweigh refused request %s: %s", output.request_id, reason)
    if output.request_id in scheduler.requests:
        scheduler.finish_requests([output.request_id], RequestStatus.FINISHED_ERROR)
    output.new_token_ids, output.new_logprobs = [], None
    output.finish_reason, output.stop_reason = FinishReason.ERROR, None
