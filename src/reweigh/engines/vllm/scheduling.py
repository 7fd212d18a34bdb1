"""vLLM's scheduler: puts each request's outcome into its first and last output, and ends requests that are refused.

A step in which no outcome changed and no request began or ended costs the same for any number of rows.
"""

from __future__ import annotations

import logging
from typing import Any

from reweigh.engines.vllm.config import MARK, settings_in
from reweigh.engines.vllm.report import STEPS_KEY, WINNERS, Ledger, tell

logger = logging.getLogger(__name__)


class Telling:
    """What a scheduler does besides; comes before vLLM's scheduler among the bases of a class."""

    vllm_config: Any
    requests: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = settings_in(self.vllm_config.additional_config)
        self.ledger = Ledger()
        self._refuses = settings is not None and settings.unedited == "refuse"

    def add_request(self, request: Any) -> Any:
        """Take in a request; if it was to be edited, its outcome will be told."""
        params = request.sampling_params
        if params is not None and (params.extra_args or {}).get(MARK):
            self.ledger.expect(request.request_id)
        return super().add_request(request)  # type: ignore[misc]

    def update_from_output(self, scheduled: Any, model_output: Any) -> Any:
        """Take in what a step computed, and tell outcomes with what it sampled."""
        ledger, running = self.ledger, len(self.requests)
        ledger.forget(scheduled.finished_req_ids)
        ledger.start(new.req_id for new in scheduled.scheduled_new_reqs)
        ledger.note(model_output)
        outputs = super().update_from_output(scheduled, model_output)  # type: ignore[misc]
        if ledger.untold or ledger.winners or len(self.requests) != running:
            for client in outputs.values():
                self._tell(client)
        return outputs

    def _tell(self, client: Any) -> None:
        """Tell news, and the outcomes of requests that end; those outputs go first, where the front end looks."""
        ledger = self.ledger
        news = [
            output
            for output in client.outputs
            if output.request_id in ledger.untold
            or output.request_id in ledger.winners
            or (output.finished and output.request_id in ledger.known)
        ]
        for output in news:
            told = ledger.take(output.request_id)
            more = {STEPS_KEY: ledger.steps(), WINNERS: ledger.winners.get(output.request_id)}
            tell(output, told, **more)
            if self._refuses and not told["edited"]:
                self._refuse(output, told["reason"])
        if news:
            chosen = {id(output) for output in news}
            client.outputs[:] = news + [output for output in client.outputs if id(output) not in chosen]

    def _refuse(self, output: Any, reason: str) -> None:
        """End a request that could not be edited with an error instead of an unedited text."""
        from vllm.v1.engine import FinishReason
        from vllm.v1.request import RequestStatus

        logger.warning("reweigh refused request %s: %s", output.request_id, reason)
        if output.request_id in self.requests:
            self.finish_requests([output.request_id], RequestStatus.FINISHED_ERROR)  # type: ignore[attr-defined]
        output.new_token_ids, output.new_logprobs = [], None
        output.finish_reason, output.stop_reason = FinishReason.ERROR, None
