"""Counters beside vLLM's own, in the registry that its ``/metrics`` shows. Observed in the front end, from outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import cache
from typing import Any

from reweigh.engines.vllm.config import KEY

MILLISECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000)


@cache
def _registered() -> dict[str, Any]:
    """Made at the first observation: vLLM clears metrics of its name when an engine starts."""
    from prometheus_client import Counter, Histogram

    return {
        "requests": Counter(
            "vllm:reweigh_requests", "Requests that were to be edited, by outcome.", ["edited"]
        ),
        "evidence": Counter(
            "vllm:reweigh_evidence", "Evidence of edited requests: measured or recalled.", ["source"]
        ),
        "missed": Counter("vllm:reweigh_missed", "Requests whose evidence could not be had."),
        "image": Histogram(
            "vllm:reweigh_evidence_ms", "Milliseconds per measured request's evidence.", buckets=MILLISECONDS
        ),
        "step": Histogram(
            "vllm:reweigh_step_ms", "Milliseconds of edits per engine step.", buckets=MILLISECONDS
        ),
    }


def start_anew() -> None:
    """Leave the counters of an earlier engine in this process behind, as vLLM does with its own."""
    if not _registered.cache_info().currsize:
        return
    from prometheus_client import REGISTRY

    for metric in _registered().values():
        with contextlib.suppress(KeyError):  # vLLM may have taken it out already
            REGISTRY.unregister(metric)
    _registered.cache_clear()


def observe(outputs: Iterable[Any], first: Iterable[str]) -> None:
    """Count what a step's outputs say; requests in ``first`` show their first output."""
    told = {
        output.request_id: output.kv_transfer_params[KEY]
        for output in outputs
        if output.kv_transfer_params and KEY in output.kv_transfer_params
    }
    if not told:
        return
    metrics = _registered()
    steps = [said["step_ms"] for said in told.values() if said.get("step_ms")]
    if steps:
        metrics["step"].observe(steps[0])
    for request in first:
        if (said := told.get(request)) is not None:
            _count(metrics, said)


def _count(metrics: dict[str, Any], said: dict[str, Any]) -> None:
    metrics["requests"].labels(edited=str(said["edited"]).lower()).inc()
    if not said["edited"]:
        metrics["missed"].inc()
        return
    metrics["evidence"].labels(source=said["evidence"]).inc()
    if said["evidence"] == "measured":
        metrics["image"].observe(said["evidence_ms"])
