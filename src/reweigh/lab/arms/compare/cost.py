"""What an answer costs: time per generated token and peak memory, measured the same way for every method.

Wall time, with the device synchronized before and after. Memory is the peak that the model's device allocated (CUDA), what
its driver holds afterwards (MPS), or the peak of this process on a CPU. ReWEIGH's evidence is a part of its time, as in
one question about a picture; for the first records it is also measured beforehand and reused, as in further questions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from reweigh.lab.bootstrap import Array, paired, ratio
from reweigh.lab.estimate import Estimate
from reweigh.lab.study import Call, Observer
from reweigh.lab.tasks.base import Item
from reweigh.peak_memory import peak_bytes, reset_peak

WARM_UP_TOKENS = 8
LATENCY, CACHED, MEMORY = "latency", "latency_cached", "memory"
SECONDS, TOKENS, CACHED_SECONDS = "seconds", "tokens", "cached_seconds"
CLOCK = "clock"
"""The key of a batch's note for the process that timed it."""
CACHED_RECORDS = 100
"""Records of each benchmark that are answered again with cached evidence; the paper times 100 prompts."""
MEMORY_OF = {"cuda": "allocated on the GPU", "mps": "held by the driver of the GPU"}
HOST_MEMORY = "resident in this process"
NOTHING = "nothing was generated"


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


@cache
def clock() -> str:
    """Name this process as a clock: when it first timed something. Only times of one clock are compared."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def memory_of(device: str | None) -> str:
    """Say which memory is measured on a kind of device."""
    return MEMORY_OF.get(device or "", HOST_MEMORY)


class Cost(Observer):
    """Notes what a batch cost: seconds, tokens, peak memory, and seconds with cached evidence.

    The session is warmed up on mirrored pictures first, since a first batch also pays for what is set up once.
    """

    def __init__(self) -> None:
        self._warm = False
        self._seconds = 0.0
        self._peak: int | None = None

    @contextmanager
    def watching(self, call: Call) -> Iterator[None]:
        """Time the answering."""
        from PIL.ImageOps import mirror

        if not self._warm:
            self._warm = True
            mirrored = [mirror(picture) for picture in call.batch.pictures]
            inputs = call.session.prepare(mirrored, call.batch.prompts, template=call.template)
            call.respond(inputs, max_new_tokens=min(WARM_UP_TOKENS, call.batch.max_new_tokens))
        with self._timed(call):
            yield

    @contextmanager
    def _timed(self, call: Call) -> Iterator[None]:
        from reweigh.families.weights import input_device

        device = input_device(call.session.model)
        _synchronize(device)
        _reset_peak(device)
        begin = time.perf_counter()
        yield
        _synchronize(device)
        self._seconds, self._peak = time.perf_counter() - begin, _peak(device)

    def note(self, call: Call) -> Mapping[str, Any]:
        """Return the cost, and measure it again with cached evidence if the decoder uses evidence."""
        tokens = sum(len(one.tokens) for one in call.answers)
        note: dict[str, Any] = {CLOCK: clock(), SECONDS: self._seconds, TOKENS: tokens, "peak": self._peak}
        if call.batch.start < CACHED_RECORDS and (evidence := _evidence(call)) is not None:
            with call.session.using(evidence=evidence), self._timed(call):
                call.respond(call.inputs)
            note[CACHED_SECONDS] = self._seconds
        return note


def _evidence(call: Call) -> Any:
    """Measure the evidence of a batch as ReWEIGH does, to reuse it; None for other decoders."""
    from reweigh.intervene import ReWEIGH
    from reweigh.measuring import measure

    session, decoder = call.session, call.session.decoder
    if not isinstance(decoder, ReWEIGH):
        return None
    table, lens = decoder.table, decoder.reader.lens
    tokens = table.tokens.tolist()
    return measure(
        session.model, call.inputs, layers=[table.layer], tokens=tokens, dtype=lens.mode, chunk=lens.chunk
    )


@dataclass(frozen=True)
class Total:
    """What all batches of one method cost: the notes on them, by benchmark and position."""

    notes: Mapping[tuple[str, int], Mapping[str, Any]]

    def other_clock(self, base: Total) -> str | None:
        """Return the clock of the first batch that was not timed in one run with the base's; None if all were."""
        for place, note in self.notes.items():
            if note.get(CLOCK) != base.notes.get(place, {}).get(CLOCK):
                return str(note.get(CLOCK, "an earlier run"))
        return None

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
        if (other := self.other_clock(base)) is not None:
            apart = f"timed in another run than the base ({other})"
            found |= {
                name: replace(one, reason=apart) for name, one in found.items() if one.value is not None
            }
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
