"""The way out of the front end: a request that was to be edited leaves with its outcome, or is said not to be edited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from reweigh.engines.vllm import metrics
from reweigh.engines.vllm.config import KEY, MARK
from reweigh.engines.vllm.report import SILENT, tell

ASKED, UNEDITED = "_reweigh_asked", "_reweigh_unedited"


@cache
def watch() -> None:
    """Watch the outputs of every engine of this process; once."""
    from vllm.v1.engine.output_processor import OutputProcessor

    add, process = OutputProcessor.add_request, OutputProcessor.process_outputs

    def add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        params = request.sampling_params
        if params is not None and (params.extra_args or {}).get(MARK):
            asked_of(self)[request.request_id] = True
        return add(self, request, *args, **kwargs)

    def process_outputs(self: Any, engine_core_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        asked = asked_of(self)
        if asked:
            parents = {
                name: state.parent_req
                for name in asked
                if (state := self.request_states.get(name)) is not None
            }
            first = complete(asked, engine_core_outputs, parents)
            if self.log_stats:
                metrics.observe(engine_core_outputs, first)
            done = process(self, engine_core_outputs, *args, **kwargs)
            for name in [name for name in asked if name not in self.request_states]:
                del asked[name]
            return done
        return process(self, engine_core_outputs, *args, **kwargs)

    OutputProcessor.add_request, OutputProcessor.process_outputs = add_request, process_outputs


def asked_of(processor: Any) -> dict[str, bool]:
    """Running requests that are to be edited; True until their first output has been seen."""
    asked: dict[str, bool] = vars(processor).setdefault(ASKED, {})
    return asked


def complete(asked: dict[str, bool], outputs: Iterable[Any], parents: Mapping[str, Any]) -> list[str]:
    """Give each output of such a request its outcome, if it does not carry one; the requests seen for the first time.

    Samples of one request have a parent in ``parents``, and one output in the end: it speaks for all of them.
    """
    first = []
    for output in outputs:
        name = output.request_id
        if name not in asked:
            continue
        if KEY not in (output.kv_transfer_params or {}):
            tell(output, SILENT, None)
        if (parent := parents.get(name)) is not None:
            _speak_for_all(output, parent)
        if asked[name]:
            asked[name] = False
            first.append(name)
    return first


def _speak_for_all(output: Any, parent: Any) -> None:
    """Once one sample was not edited, no output of its request says that it was."""
    told = output.kv_transfer_params[KEY]
    if not told["edited"]:
        vars(parent).setdefault(
            UNEDITED, {"edited": False, "reason": f"of one of its samples: {told['reason']}"}
        )
    elif (known := vars(parent).get(UNEDITED)) is not None:
        tell(output, known, None)
