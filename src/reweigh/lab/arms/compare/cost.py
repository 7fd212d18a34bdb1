"""What an answer costs: time per generated token and peak memory, measured the same way for every method.

On an accelerator: wall time with the device synchronized, and the peak of allocated memory. On a CPU: CPU time of this
process, which waiting for a core does not change, and the peak of resident memory of the whole process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from reweigh.engines.answer import Answer
from reweigh.lab.bootstrap import Array, paired, ratio
from reweigh.lab.estimate import Estimate
from reweigh.lab.runs.run import Answered, Batch
from reweigh.lab.tasks.base import Item
from reweigh.peak_memory import peak_bytes, reset_peak
from reweigh.text import Template

if TYPE_CHECKING:
    from PIL.Image import Image

    from reweigh.engines.session import Session

COSTS = "costs.jsonl"
WARM_UP_TOKENS = 8
LATENCY, MEMORY = "latency", "memory"
COUNTED = ("seconds", "tokens")
NOTHING = "nothing was generated"
Result = TypeVar("Result")


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


def timed(session: Session, *, template: Template | None = None) -> Callable[[Batch], Answered]:
    """Answer batches through a session, in its authors' regime, and note the cost of each: seconds, tokens, peak memory.

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
        return Answered(answers, {"seconds": seconds, "tokens": tokens, "peak": peak})

    return ask


@dataclass(frozen=True)
class Total:
    """What all batches of one method cost: the notes on them, by benchmark and position."""

    notes: Mapping[tuple[str, int], Mapping[str, Any]]

    @property
    def seconds_per_token(self) -> float | None:
        """Time over tokens; None if nothing was generated."""
        tokens = sum(note["tokens"] for note in self.notes.values())
        return sum(note["seconds"] for note in self.notes.values()) / tokens if tokens else None

    @property
    def peak(self) -> int | None:
        """The highest peak of memory, if the system reports it."""
        peaks = (note["peak"] for note in self.notes.values())
        return max((peak for peak in peaks if peak is not None), default=None)

    def latency_over(self, base: Total) -> Estimate:
        """Return time per token over the base's, with a 95% interval that draws the same batches for both."""
        if not self.notes:  # the model cannot serve it, or it was not run
            return Estimate(None, reason=NOTHING)
        found = paired(base._items(), self._items(), _latency, _ratios)
        return found.get(LATENCY, Estimate(None, reason=NOTHING))

    def memory_over(self, base: Total) -> Estimate:
        """Return peak memory over the base's; a peak has no interval."""
        if self.peak is None or not base.peak:
            return Estimate(None, reason="the system does not report peak memory" if self.notes else NOTHING)
        return Estimate(self.peak / base.peak)

    def _items(self) -> list[Item]:
        return [
            Item(id=f"{name}/{start}", image=f"{name}/{start}", counts={part: note[part] for part in COUNTED})
            for (name, start), note in self.notes.items()
        ]


def _latency(counts: Mapping[str, Array]) -> dict[str, Array]:
    return {LATENCY: ratio(counts["seconds"], counts["tokens"], scale=1.0)}


def _ratios(base: Mapping[str, Array], own: Mapping[str, Array]) -> dict[str, Array]:
    return {LATENCY: ratio(own[LATENCY], base[LATENCY], scale=1.0)}
