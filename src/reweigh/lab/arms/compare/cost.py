"""What an answer costs: time per generated token and peak memory, measured the same way for every method.

Wall time, with the device synchronized before and after. Memory is the peak that the model's device allocated (CUDA), what
its driver holds afterwards (MPS), or the peak of this process on a CPU. ReWEIGH's evidence is a part of its time, as in
one question about a picture; for the first records it is also measured beforehand and reused, as in further questions.
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
LATENCY, CACHED, MEMORY = "latency", "latency_cached", "memory"
SECONDS, TOKENS, CACHED_SECONDS = "seconds", "tokens", "cached_seconds"
CACHED_RECORDS = 100
"""Records of each benchmark that are answered again with cached evidence; the paper times 100 prompts."""
MEMORY_OF = {"cuda": "allocated on the GPU", "mps": "held by the driver of the GPU"}
HOST_MEMORY = "resident in this process"
NOTHING = "nothing was generated"
Result = TypeVar("Result")


def measured(device: Any, run: Callable[[], Result]) -> tuple[Result, float, int | None]:
    """Run something on the model's device; return its result, the seconds it took and the peak of memory."""
    _synchronize(device)
    _reset_peak(device)
    begin = time.perf_counter()
    result = run()
    _synchronize(device)
    return result, time.perf_counter() - begin, _peak(device)


def _synchronize(device: Any) -> None:
    """Wait until the device has done everything that was asked of it."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _reset_peak(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif device.type == "mps":
        torch.mps.empty_cache()
    else:
        reset_peak()


def _peak(device: Any) -> int | None:
    import torch

    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return int(torch.mps.driver_allocated_memory()) if device.type == "mps" else peak_bytes()


def memory_of(device: str | None) -> str:
    """Say which memory is measured on a kind of device."""
    return MEMORY_OF.get(device or "", HOST_MEMORY)


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
        inputs, device = prepare(batch, batch.pictures), input_device(session.model)
        run = partial(respond, batch, inputs, batch.max_new_tokens)
        answers, seconds, peak = measured(device, run)
        note = {SECONDS: seconds, TOKENS: sum(len(one.tokens) for one in answers), "peak": peak}
        if batch.start < CACHED_RECORDS and (evidence := _evidence(session, inputs)) is not None:
            with session.request(evidence=evidence):
                _, note[CACHED_SECONDS], _ = measured(device, run)
        return Answered(answers, note)

    return ask


def _evidence(session: Session, inputs: Mapping[str, Any]) -> Any:
    """Measure the evidence of some prompts as ReWEIGH does, to reuse it; None for other decoders."""
    from reweigh.attached import Attached
    from reweigh.measuring import measure

    if not isinstance(session, Attached):
        return None
    lens = session.decoder.reader.lens
    tokens = session.table.tokens.tolist()
    return measure(
        session.model, inputs, layers=[session.layer], tokens=tokens, dtype=lens.mode, chunk=lens.chunk
    )


@dataclass(frozen=True)
class Total:
    """What all batches of one method cost: the notes on them, by benchmark and position."""

    notes: Mapping[tuple[str, int], Mapping[str, Any]]

    @property
    def seconds_per_token(self) -> float | None:
        """Time over tokens; None if nothing was generated."""
        tokens = sum(note[TOKENS] for note in self.notes.values())
        return sum(note[SECONDS] for note in self.notes.values()) / tokens if tokens else None

    @property
    def peak(self) -> int | None:
        """The highest peak of memory, if the system reports it."""
        peaks = (note["peak"] for note in self.notes.values())
        return max((peak for peak in peaks if peak is not None), default=None)

    def latency_over(self, base: Total, seconds: str = SECONDS) -> Estimate:
        """Return time per token over the base's, with a 95% interval that draws the same batches for both.

        ``seconds`` is the kind of time; batches without it are left out of both.
        """
        keys = [key for key, note in self.notes.items() if seconds in note and key in base.notes]
        if not keys:  # the model cannot serve it, or it was not run
            return Estimate(None, reason=NOTHING)
        both = base._items(keys, SECONDS), self._items(keys, seconds)
        return paired(*both, _latency, _ratios).get(LATENCY, Estimate(None, reason=NOTHING))

    def memory_over(self, base: Total) -> Estimate:
        """Return peak memory over the base's; a peak has no interval."""
        if self.peak is None or not base.peak:
            return Estimate(None, reason="the system does not report peak memory" if self.notes else NOTHING)
        return Estimate(self.peak / base.peak)

    def over(self, base: Total) -> dict[str, Estimate]:
        """Return every figure of cost relative to the base's; latency with cached evidence only where it was measured."""
        found = {LATENCY: self.latency_over(base), MEMORY: self.memory_over(base)}
        if any(CACHED_SECONDS in note for note in self.notes.values()):
            found[CACHED] = self.latency_over(base, CACHED_SECONDS)
        return found

    def _items(self, keys: list[tuple[str, int]], seconds: str) -> list[Item]:
        notes = ((f"{name}/{start}", self.notes[name, start]) for name, start in keys)
        return [
            Item(id=name, image=name, counts={SECONDS: note[seconds], TOKENS: note[TOKENS]})
            for name, note in notes
        ]


def _latency(counts: Mapping[str, Array]) -> dict[str, Array]:
    return {LATENCY: ratio(counts[SECONDS], counts[TOKENS], scale=1.0)}


def _ratios(base: Mapping[str, Array], own: Mapping[str, Array]) -> dict[str, Array]:
    return {LATENCY: ratio(own[LATENCY], base[LATENCY], scale=1.0)}
