"""Whole generations side by side: greedy, ReWEIGH with cached and with online evidence, and the rivals.

Every variant writes the same number of tokens. The floor of online evidence is the head's own product over the visual
positions; evidence is timed against it separately, because it is a small part of the whole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from reweigh.attached import Attached
from reweigh.engines.base import Pass
from reweigh.engines.transformers.manager import HookManager, image_pass, watching
from reweigh.errors import ReweighError, require_known
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.measuring import measure
from reweigh.method.evidence import Evidence
from reweigh.rivals import DECODERS, decoder
from tools.bench.report import Measurement, peak_mib
from tools.bench.timing import OwnClock, Reading, Rounds, Timing


@dataclass(frozen=True)
class Subject:
    """A model with one prompt, and ReWEIGH for it."""

    name: str
    model: Any
    processor: Any
    inputs: dict[str, Any]
    reweigh: Attached
    new_tokens: int

    def __post_init__(self) -> None:
        # every variant writes the same number of tokens: no token ends a generation
        self.model.generation_config.eos_token_id = None

    @cached_property
    def evidence(self) -> list[Evidence | None]:
        """The evidence of the prompt, measured once, for generations with cached evidence."""
        table, lens = self.reweigh.table, self.reweigh.decoder.reader.lens
        return measure(
            self.model,
            self.inputs,
            layers=[table.layer],
            tokens=table.tokens.tolist(),
            dtype=lens.mode,
            chunk=lens.chunk,
        )

    @cached_property
    def parameters(self) -> int:
        """Weights of the model."""
        return sum(weight.numel() for weight in self.model.parameters())

    def __str__(self) -> str:
        positions = int(
            sum((self.inputs["input_ids"] == i).sum() for i in self.reweigh.decoder.anatomy.image_tokens)
        )
        return f"{self.name} {self.parameters / 1e6:,.0f} M parameters, {positions} visual, {self.new_tokens} new tokens"


def describing(name: str, session: Attached, picture: Any, new_tokens: int) -> Subject:
    """Let the attached model describe one picture."""
    inputs = build_inputs(session.model, session.processor, [picture], [DESCRIBE])
    return Subject(name, session.model, session.processor, inputs, session, new_tokens)


CACHED, ONLINE, OWN = "cached evidence", "online evidence", ", by its own clock"

GOALS = {CACHED: 1.013, ONLINE: 1.024}
"""Largest cost relative to greedy, on models of at least half a billion parameters; judged by its own clock, which resolves
such differences."""
FLOOR = 1.15
"""Largest cost of evidence relative to the head's product over the visual positions, on such a model."""
LARGE = 5 * 10**8

TRIAL = 2
"""Tokens of the run that measures peak memory: reading the prompt takes the most."""

Run = Callable[[int], object]
"""Generates a number of tokens."""


def rivals() -> list[str]:
    """Return the names of the decoders ReWEIGH is compared with."""
    return [name for name in DECODERS if DECODERS[name].is_rival]


def find_rivals(names: Sequence[str]) -> list[str]:
    """Find rivals by name; "all" alone stands for every one."""
    if list(names) == ["all"]:
        return rivals()
    require_known("rival", names, rivals())
    return list(names)


def generation_figures(
    subject: Subject, rounds: Rounds, names: Sequence[str], note: Callable[[str], None] = lambda _: None
) -> Iterator[Measurement]:
    """Time whole generations of one subject, greedy and ReWEIGH first, then the rivals named.

    ``note`` is called with a line about each rival that cannot run on this subject.
    """
    runs: dict[str, Run] = {
        "greedy": lambda tokens: generate(subject, nullcontext(), tokens),
        CACHED: lambda tokens: _clocked(subject, tokens, cached=True),
        ONLINE: lambda tokens: _clocked(subject, tokens, cached=False),
    }
    runs |= {f"rival: {name}": _rival(subject, name) for name in names}
    subject.evidence  # noqa: B018  (measured here, so that no timed run includes it)
    memory: dict[str, float | None] = {}
    for name, run in runs.items():
        try:  # also loads and compiles what is used once
            memory[name] = peak_mib(functools.partial(run, TRIAL))
        except (ReweighError, ImportError) as error:
            note(f"{name} is left out on {subject.name}: {error}")
    variants = {name: functools.partial(runs[name], subject.new_tokens) for name in memory}
    timings = rounds.compare(f"generation, {subject}", variants, warm=0)
    for name, timing in timings.items():
        yield Measurement(
            "generation",
            str(subject),
            name,
            timing.per(1e6),
            "ms",
            None if name == "greedy" else timing.over(timings["greedy"]),
            "greedy",
            memory=memory[name],
        )
    yield from _shares(subject, timings, GOALS if subject.parameters >= LARGE else {})
    yield from _evidence(subject, rounds, timings["greedy"].per(1e6).number)


def _shares(
    subject: Subject, timings: Mapping[str, Timing], goals: Mapping[str, float]
) -> Iterator[Measurement]:
    """Compare evidence and edits with the rest of the same generation, which stands for greedy.

    Two generations differ by more than the effect.
    """
    for name in (CACHED, ONLINE):
        whole, own = timings[name], Timing(timings[name].notes["own"])
        rest = Timing(tuple(a - b for a, b in zip(whole.seconds, own.seconds, strict=True)))
        yield Measurement(
            "share",
            str(subject),
            f"{name}{OWN}",
            own.per(1e6),
            "ms",
            whole.over(rest),
            "the rest of it",
            goals.get(name),
        )


def in_a_sentence(measured: Sequence[Measurement]) -> str:
    """Say what ReWEIGH adds to a generation, by its own clock."""
    cached, online = (
        next(
            one.ratio.map(lambda ratio: 100 * (ratio - 1))
            for one in measured
            if one.ratio and one.variant == name
        )
        for name in (f"{CACHED}{OWN}", f"{ONLINE}{OWN}")
    )
    return (
        f"ReWEIGH adds {online.text(1, unit=' %')} to the time of this generation, {cached.text(1, unit=' %')} if the "
        "evidence of the picture is cached."
    )


def _clocked(subject: Subject, tokens: int, *, cached: bool) -> Reading:
    """Run one generation and time its hooks, including the decoder's work."""
    method, clock = subject.reweigh.decoder, OwnClock()
    hooks = HookManager.of(method.anatomy)
    run = method.run(evidence=subject.evidence if cached else None)
    with clock.following([(hooks._forward, hook) for hook in ("before", "capture", "after")]):
        generate(subject, hooks.passes(run), tokens)
    return Reading(own=clock.take())


@torch.no_grad()
def generate(subject: Subject, context: AbstractContextManager[Any], tokens: int, **options: Any) -> Tensor:
    """Generate a text of a fixed length."""
    with context:
        out: Tensor = subject.model.generate(
            **subject.inputs, **{"do_sample": False, **options}, max_new_tokens=tokens
        )
    return out


def _rival(subject: Subject, name: str) -> Run:
    """Return a rival's generation in the regime of its authors; it is tied to the model when it first runs."""

    @functools.cache
    def attached() -> Any:
        return decoder(name, subject.model, subject.processor)

    def run(tokens: int) -> Tensor:
        return generate(subject, attached(), tokens, **attached().decoder.decoding())

    return run


@torch.no_grad()
def _evidence(subject: Subject, rounds: Rounds, greedy_ms: float) -> Iterator[Measurement]:
    """Compare evidence with its floor, on the states of a real prefill."""
    method = subject.reweigh.decoder
    layer = method.table.layer
    passes: list[Pass] = []
    with watching(method.anatomy, [layer], passes.append):
        subject.model(**subject.inputs, use_cache=False)
    forward = image_pass(passes)
    [(row, _, columns)] = forward.new()
    states = forward.states[layer][row, columns].clone()
    reader = method.reader

    def product() -> None:
        for chunk in torch.split(states, reader.lens.chunk):
            reader.lens.read(chunk)

    timings = rounds.compare(
        f"evidence, {subject}",
        {
            "head's product": product,
            "evidence": lambda: reader.read(states),
        },
        count=7,
    )
    share = timings["head's product"].per(1e6).number / greedy_ms
    for name, timing in timings.items():
        yield Measurement(
            "evidence",
            f"{subject.name}: the floor is {share:.2%} of a greedy generation",
            name,
            timing.per(1e6),
            "ms",
            timing.over(timings["head's product"]) if name == "evidence" else None,
            "head's product",
            FLOOR if name == "evidence" and subject.parameters >= LARGE else None,
        )
