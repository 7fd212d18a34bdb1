"""What an answer costs: time per generated token and peak memory, measured the same way for every method.

On an accelerator: wall time with the device synchronised, and the peak of allocated memory. On a CPU: CPU time of this
process, which waiting for a core does not change, and the peak of resident memory of the whole process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from reweigh.benchmarks.base import Item
from reweigh.benchmarks.bootstrap import Array, paired, ratio
from reweigh.estimate import Estimate
from reweigh.memory import peak_bytes, reset_peak
from reweigh.runs.run import Answered, Batch
from reweigh.runtime.answer import Answer

if TYPE_CHECKING:
    from PIL.Image import Image

    from reweigh.engines.transformers.session import Session

COSTS = "costs.jsonl"
WARM_UP_TOKENS = 8
LATENCY, MEMORY = "latency", "memory"
NOTHING = "nothing was generated"
Result = TypeVar("Result")


@dataclass(frozen=True)
class BatchCost:
    """One answered batch: seconds, tokens generated, peak memory in bytes if the system reports it."""

    seconds: float
    tokens: int
    peak: int | None

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> BatchCost:
        """Read the cost from the note on a batch."""
        return cls(note["seconds"], note["tokens"], note["peak"])


def measured(device: Any, run: Callable[[], Result]) -> tuple[Result, float, int | None]:
    """Run something on the model's device; return its result, the seconds it took and the peak of memory."""
    import torch

    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    else:
        reset_peak()
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    begin = clock()
    result = run()
    if cuda:
        torch.cuda.synchronize(device)
    seconds = clock() - begin
    return result, seconds, int(torch.cuda.max_memory_allocated(device)) if cuda else peak_bytes()


def timed(session: Session, *, template: str | None = None) -> Callable[[Batch], Answered]:
    """Answer batches through a session, in its authors' regime, and note the cost of each.

    It is warmed up on mirrored pictures first, since a first batch also pays for what is set up once.
    """
    from PIL.ImageOps import mirror

    from reweigh.families.weights import input_device

    def prepare(batch: Batch, pictures: list[Image]) -> dict[str, Any]:
        return session.prepare(pictures, batch.prompts, template=template)

    def respond(batch: Batch, inputs: dict[str, Any], limit: int) -> list[Answer]:
        options = {**session.decoder.decoding(), "max_new_tokens": limit}
        return session.respond(inputs, seed=batch.seed, **options)

    warm = False

    def ask(batch: Batch) -> Answered:
        nonlocal warm
        if not warm:
            warm = True
            mirrored = prepare(batch, [mirror(picture) for picture in batch.pictures])
            respond(batch, mirrored, min(WARM_UP_TOKENS, batch.max_new_tokens))
        inputs = prepare(batch, batch.pictures)
        run = partial(respond, batch, inputs, batch.max_new_tokens)
        answers, seconds, peak = measured(input_device(session.model), run)
        tokens = sum(len(answer.tokens) for answer in answers)
        return Answered(answers, asdict(BatchCost(seconds, tokens, peak)))

    return ask


@dataclass(frozen=True)
class Total:
    """The costs of all batches of one arm, by benchmark and position."""

    batches: Mapping[tuple[str, int], BatchCost]

    @property
    def seconds_per_token(self) -> float | None:
        """Time over tokens; None if nothing was generated."""
        tokens = sum(cost.tokens for cost in self.batches.values())
        return sum(cost.seconds for cost in self.batches.values()) / tokens if tokens else None

    @property
    def peak(self) -> int | None:
        """The highest peak of memory, if the system reports it."""
        return max((cost.peak for cost in self.batches.values() if cost.peak is not None), default=None)

    def latency_over(self, base: Total) -> Estimate:
        """Return time per token over the base's, with a 95% interval that draws the same batches for both."""
        if not self.batches:  # the model cannot serve it, or it was not run
            return Estimate(None, reason=NOTHING)
        found = paired(base._items(), self._items(), _latency, _ratios)
        return found.get(LATENCY, Estimate(None, reason=NOTHING))

    def memory_over(self, base: Total) -> Estimate:
        """Return peak memory over the base's; a peak has no interval."""
        if self.peak is None or not base.peak:
            return Estimate(
                None, reason="the system does not report peak memory" if self.batches else NOTHING
            )
        return Estimate(self.peak / base.peak)

    def _items(self) -> list[Item]:
        found = {f"{name}/{start}": one for (name, start), one in self.batches.items()}
        return [
            Item(id=key, image=key, counts={"seconds": one.seconds, "tokens": one.tokens})
            for key, one in found.items()
        ]


def _latency(counts: Mapping[str, Array]) -> dict[str, Array]:
    return {LATENCY: ratio(counts["seconds"], counts["tokens"], scale=1.0)}


def _ratios(base: Mapping[str, Array], own: Mapping[str, Array]) -> dict[str, Array]:
    return {LATENCY: ratio(own[LATENCY], base[LATENCY], scale=1.0)}
