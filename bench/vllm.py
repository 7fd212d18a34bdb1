"""What the plugin costs inside vLLM: a step without it, with it switched off, with recalled evidence, and new evidence.

Two engines of one random LLaVA in this process, so that CPU time covers all of an engine's work. Steps are timed one by
one; a run's step is the median of its decoding steps. What the plugin takes is read from a clock of its own in the same
steps, and so is the head's product inside it: two runs of an engine differ by more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from bench.random_llava import VOCAB, random_table
from bench.vllm_subject import PROMPT, save_llava
from reweigh.errors import MissingExtraError
from reweigh.estimate import Estimate
from reweigh.method.lens import Lens
from reweigh.speed.report import Measurement
from reweigh.speed.timing import OwnClock, Reading, Rounds, Target, Timing, median_estimate

GOALS = {"switched off": 1.001, "recalled evidence": 1.01}
"""Goals relative to the rest of a step at V = 32,000, by its own clock; the first stands for a cost too small to measure."""
MEASURED_GOAL = 1.15
"""Goal relative to the head's product over the visual positions, by the plugin's own clock."""

PART = "vllm"
BARE, NEW = "without the plugin", "new evidence"


def vllm_figures(
    rounds: Rounds, *, new_tokens: int = 16, width: int = 4096, blocks: int = 3, side: int = 24
) -> Iterator[Measurement]:
    """The figures of one random LLaVA: head and visual positions of LLaVA-1.5, few blocks so that two fit."""
    try:
        import vllm  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("timing inside vLLM", "vllm", "vllm") from error
    from reweigh.engines.vllm.plugin import require_plugin

    require_plugin()
    with TemporaryDirectory() as name:
        folder = Path(name)
        save_llava(folder / "model", width=width, blocks=blocks, side=side)
        random_table(VOCAB, blocks // 2).save_pretrained(folder / "table")
        clocks = Clocks(OwnClock(), OwnClock())
        bare = _Engine(folder / "model", {}, new_tokens, clocks)
        section = {"table": str(folder / "table"), "beta": 1.1, "force": True}
        tied = _Engine(folder / "model", {"reweigh": section}, new_tokens, clocks)
        case = f"random LLaVA, V={VOCAB} d={width} {blocks} blocks, {side * side} positions, batch 1"
        with clocks.plugin.following(_parts()), clocks.head.following([(Lens, "read")]):
            yield from _figures(case, bare, tied, rounds)


class Clocks(NamedTuple):
    """What is timed inside an engine's steps.

    Attributes:
        plugin: All that the plugin does.
        head: Norm and head over the visual positions, which the plugin cannot do without.
    """

    plugin: OwnClock
    head: OwnClock


def _parts() -> list[Target]:
    """Everything the plugin does in a step: in the worker, in the scheduler, and on the way out."""
    from reweigh.engines.vllm import working
    from reweigh.engines.vllm.capture import Capture
    from reweigh.engines.vllm.outputs import Record
    from reweigh.engines.vllm.processor import Processor
    from reweigh.engines.vllm.report import Reporting

    return [
        *((Capture, name) for name in ("step", "news")),
        *((Processor, name) for name in ("apply", "late")),
        (working, "attach"),
        *((Reporting, name) for name in ("note", "report")),
        *((Record, name) for name in ("hear", "write")),
    ]


def _figures(case: str, bare: _Engine, tied: _Engine, rounds: Rounds) -> Iterator[Measurement]:
    fresh = count(1)
    variants: dict[str, Callable[[], object]] = {
        BARE: lambda: bare.run(0),
        "switched off": lambda: tied.run(0, {"reweigh": "off"}),
        "recalled evidence": lambda: tied.run(0),
        NEW: lambda: tied.run(next(fresh)),
    }
    timings = rounds.compare(f"{PART}, {case}", variants)
    where, unit = f"{case}: a step", "ms per step"
    base = timings[BARE].notes["step"]
    yield Measurement(PART, where, BARE, _milliseconds(base), unit)
    for name in GOALS:
        step = timings[name].notes["step"]
        yield Measurement(PART, where, name, _milliseconds(step), unit, _over(step, base), BARE)
    for name, goal in GOALS.items():
        step, own = (timings[name].notes[note] for note in ("step", "own step"))
        rest = [one - its for one, its in zip(step, own, strict=True)]
        yield Measurement(
            PART,
            f"{case}: a step, the plugin by its own clock",
            name,
            _milliseconds(own),
            unit,
            _over(step, rest),
            "the rest of the step",
            goal,
        )
    yield from _evidence(case, timings)


def _evidence(case: str, timings: Mapping[str, Timing]) -> Iterator[Measurement]:
    """The plugin's time in a prefill that measures, compared with the head's product in it."""
    own, head = (timings[NEW].notes[note] for note in ("own prefill", "head"))
    where, unit, product = f"{case}: evidence of an image, by its own clock", "ms per image", "head's product"
    yield Measurement(PART, where, product, _milliseconds(head), unit)
    yield Measurement(PART, where, NEW, _milliseconds(own), unit, _over(own, head), product, MEASURED_GOAL)


def _milliseconds(seconds: Sequence[float]) -> Estimate:
    return median_estimate([1000 * one for one in seconds])


def _over(own: Sequence[float], other: Sequence[float]) -> Estimate:
    return median_estimate([one / its for one, its in zip(own, other, strict=True)])


class _Engine:
    """One engine, driven step by step."""

    def __init__(
        self, model: Path, additional_config: dict[str, Any], new_tokens: int, clocks: Clocks
    ) -> None:
        import os

        from reweigh.engines.vllm.frontend import patch_llvmlite

        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        patch_llvmlite()
        from vllm import LLM

        llm: Any = LLM(
            model=str(model),
            dtype="float32",
            enforce_eager=True,
            max_model_len=1024,
            max_num_seqs=1,
            kv_cache_memory_bytes=1 << 28,
            enable_prefix_caching=False,
            mm_processor_kwargs={"use_fast": False},
            additional_config=additional_config,
        )
        self.engine, self.new_tokens, self.clocks = llm.llm_engine, new_tokens, clocks
        self._numbers = count()

    def run(self, picture: int, extra_args: dict[str, Any] | None = None) -> Reading:
        """Decode one request; seconds of its prefill and of a decoding step, and the plugin's share of each."""
        from PIL import Image
        from vllm import SamplingParams

        pixels = np.random.default_rng(picture).integers(0, 256, (336, 336, 3), dtype=np.uint8)
        params = SamplingParams(
            temperature=0,
            max_tokens=self.new_tokens,
            ignore_eos=True,
            detokenize=False,
            extra_args=extra_args,
        )
        prompt = {"prompt": PROMPT, "multi_modal_data": {"image": Image.fromarray(pixels)}}
        self.engine.add_request(str(next(self._numbers)), prompt, params)
        steps = [self._step()]
        while self.engine.has_unfinished_requests():
            steps.append(self._step())
        whole, own, head = zip(*steps, strict=True)
        return Reading(
            {
                "prefill": whole[0],
                "own prefill": own[0],
                "head": head[0],
                "step": median(whole[1:]),
                "own step": median(own[1:]),
            }
        )

    def _step(self) -> tuple[float, ...]:
        """Seconds of one step, of the plugin in it, and of the head's product in that."""
        import time

        for clock in self.clocks:
            clock.take()
        begin = time.process_time()
        self.engine.step()
        return time.process_time() - begin, *(clock.take() for clock in self.clocks)
