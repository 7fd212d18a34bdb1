"""Counters beside vLLM's own, in the registry that its ``/metrics`` shows. Observed in the front end, from outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import cache
from typing import Any

MILLISECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
MODEL = "model_name"
"""The label under which vLLM's own metrics name the model."""


@cache
def _registered() -> dict[str, Any]:
    """Made at the first observation: vLLM clears metrics of its name when an engine starts."""
    from prometheus_client import Counter, Histogram

    def histogram(name: str, text: str) -> Any:
        return Histogram(f"vllm:reweigh_{name}", text, [MODEL], buckets=MILLISECONDS)

    return {
        "requests": Counter(
            "vllm:reweigh_requests", "Requests that were to be edited, by outcome.", [MODEL, "edited"]
        ),
        "evidence": Counter(
            "vllm:reweigh_evidence", "Evidence of edited requests: measured or recalled.", [MODEL, "source"]
        ),
        "missed": Counter("vllm:reweigh_missed", "Requests whose evidence could not be had.", [MODEL]),
        "image": histogram("evidence_ms", "Milliseconds per measured request's evidence."),
        "step": histogram("step_ms", "Milliseconds of edits per engine step."),
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


class Metrics:
    """What one engine counts, under its model's name; nothing where vLLM logs no statistics."""

    def __init__(self, model: str, *, enabled: bool) -> None:
        self.model, self.enabled = model, enabled

    def count(self, told: dict[str, Any], steps: Iterable[float], *, first: bool) -> None:
        """Count an outcome that was told, ``first`` of its request, and the milliseconds of steps since the last."""
        if not self.enabled:
            return
        metrics = _registered()
        for milliseconds in steps:
            metrics["step"].labels(self.model).observe(milliseconds)
        if not first:
            return
        metrics["requests"].labels(self.model, str(told["edited"]).lower()).inc()
        if not told["edited"]:
            metrics["missed"].labels(self.model).inc()
            return
        metrics["evidence"].labels(self.model, told["evidence"]).inc()
        if told["evidence"] == "measured":
            metrics["image"].labels(self.model).observe(told["evidence_ms"])
