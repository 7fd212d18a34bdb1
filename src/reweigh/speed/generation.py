"""Whole generations side by side: greedy, ReWEIGH with cached and with online evidence, and the rivals.

Every variant writes the same number of tokens. The floor of online evidence is the head's own product over the
visual positions; how close the measurement comes to it is timed by itself, since it is a small part of the whole.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from reweigh.decoders import DECODERS, decoder
from reweigh.errors import ReweighError
from reweigh.measure.tap import Glimpse, Tap
from reweigh.speed.figures import Figure
from reweigh.speed.machine import peak_mib
from reweigh.speed.subjects import Subject
from reweigh.speed.timing import Timing, Variant, interleave

PLAIN = frozenset({"base", "greedy", "nucleus", "cut", "reweigh"})
"""Decoders that are no rival: greedy itself, its variants, and the method."""

CACHED, ONLINE, FLOOR = 1.013, 1.024, 1.15
"""Goals on a model of half a billion parameters or more: of greedy, of greedy, of the floor."""
LARGE = 4 * 10**8


def rivals() -> list[str]:
    """Names of the decoders ReWEIGH is compared with."""
    return [name for name in DECODERS if name not in PLAIN]


def generation_figures(subject: Subject, rounds: int, names: Sequence[str]) -> Iterator[Figure]:
    """Time whole generations of one subject, greedy and ReWEIGH first, then the rivals named."""
    variants: dict[str, Variant] = {
        "greedy": lambda: generate(subject, nullcontext()),
        "cached evidence": lambda: generate(subject, subject.reweigh, cached=True),
        "online evidence": lambda: generate(subject, subject.reweigh),
    }
    for name in names:
        run = _rival(subject, name)
        if run is not None:
            variants[f"rival: {name}"] = run
    generate(subject, subject.reweigh, cached=True, new_tokens=2)  # loads and compiles what is used once
    memory = {name: peak_mib(variant) for name, variant in variants.items()}  # serves as the warm round
    timings = interleave(variants, rounds, warm=0)
    large = sum(weight.numel() for weight in subject.model.parameters()) >= LARGE
    goals = {"cached evidence": CACHED, "online evidence": ONLINE} if large else {}
    for name, timing in timings.items():
        yield Figure(
            "generation",
            str(subject),
            name,
            timing.per(1e6),
            "ms",
            None if name == "greedy" else timing.over(timings["greedy"]),
            "greedy",
            goals.get(name),
            memory[name],
        )
    yield from _shares(subject, rounds, goals)
    yield from _evidence(subject, max(rounds, 7), timings["greedy"].per(1e6).value)


class _Clocked:
    """A listener with a clock of its own: how much of a generation is spent in it."""

    def __init__(self, listener: Any) -> None:
        self.listener = listener
        self.layers = listener.layers
        self.seconds = 0.0

    def listen(self, glimpse: Glimpse) -> Tensor | None:
        begin = time.process_time()
        edited: Tensor | None = self.listener.listen(glimpse)
        self.seconds += time.process_time() - begin
        return edited


def _shares(subject: Subject, rounds: int, goals: dict[str, float]) -> Iterator[Figure]:
    """Evidence and edits against the rest of the very generation they are part of.

    Two generations differ by more than what is to be measured, one and itself do not. The rest stands for greedy.
    """
    method = subject.reweigh.decoder
    for name in ("cached evidence", "online evidence"):
        own: list[float] = []
        rest: list[float] = []
        for _ in range(rounds):
            clocked = _Clocked(method)
            begin = time.process_time()
            generate(subject, Tap(method.anatomy, clocked), cached=name.startswith("cached"))
            own.append(clocked.seconds)
            rest.append(time.process_time() - begin - clocked.seconds)
        whole = Timing(tuple(a + b for a, b in zip(own, rest, strict=True)))
        yield Figure(
            "share",
            str(subject),
            f"{name}, by its own clock",
            Timing(tuple(own)).per(1e6),
            "ms",
            whole.over(Timing(tuple(rest))),
            "the rest of it",
            goals.get(name),
        )


@torch.no_grad()
def generate(
    subject: Subject,
    context: AbstractContextManager[Any],
    *,
    cached: bool = False,
    new_tokens: int | None = None,
    **options: Any,
) -> Tensor:
    """One generation of a fixed length; ``cached`` serves the evidence from memory."""
    given = subject.reweigh.using(subject.evidence) if cached else nullcontext()
    with given, context:
        out: Tensor = subject.model.generate(
            **subject.inputs,
            **{"do_sample": False, **options},
            max_new_tokens=new_tokens or subject.new_tokens,
        )
    return out


def _rival(subject: Subject, name: str) -> Variant | None:
    """A rival's generation, or ``None`` if it cannot run on this subject (it lacks a processor, say)."""
    try:
        attached = decoder(name, subject.model, subject.processor)
        options = {**attached.decoder.regime, **attached.decoder.generation}
        generate(subject, attached, new_tokens=2, **options)
    except (ReweighError, ImportError):
        return None
    return lambda: generate(subject, attached, **options)


class _Keeper:
    """A listener that keeps the states of the visual positions."""

    def __init__(self, layer: int) -> None:
        self.layer = layer
        self.layers = frozenset({layer})
        self.states: Tensor | None = None

    def listen(self, glimpse: Glimpse) -> None:
        for row, columns in enumerate(glimpse.fresh()):
            if columns:
                self.states = glimpse.states[self.layer][row, columns].clone()


@torch.no_grad()
def _evidence(subject: Subject, rounds: int, greedy_ms: float) -> Iterator[Figure]:
    """Evidence against its floor, on the states of a real prefill."""
    method = subject.reweigh.decoder
    keeper = _Keeper(method.table.layer)
    with Tap(method.anatomy, keeper):
        subject.model(**subject.inputs, use_cache=False)
    states = keeper.states
    if states is None:
        return
    timings = interleave(
        {
            "head's product": lambda: [None for _ in method.lens.chunks(states)],
            "evidence": lambda: method.gatherer._read(states),
        },
        rounds,
    )
    share = timings["head's product"].per(1e6).value / greedy_ms
    large = sum(weight.numel() for weight in subject.model.parameters()) >= LARGE
    for name, timing in timings.items():
        yield Figure(
            "evidence",
            f"{subject.name}: the floor is {share:.2%} of a greedy generation",
            name,
            timing.per(1e6),
            "ms",
            timing.over(timings["head's product"]) if name == "evidence" else None,
            "head's product",
            FLOOR if name == "evidence" and large else None,
        )
