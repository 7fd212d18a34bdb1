"""Calibration throughput: images decoded together against one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from reweigh.calibration.calibrate import calibrate
from tools.bench.report import Measurement
from tools.bench.timing import Rounds, Variant

BATCHES = (1, 10, 50)
GOAL = 0.5
"""Largest cost per image in the largest batch, relative to one by one."""


def calibration_figures(
    model: Any,
    processor: Any,
    images: Sequence[Any],
    rounds: Rounds,
    *,
    batches: Sequence[int] = BATCHES,
    max_new_tokens: int = 120,
) -> Iterator[Measurement]:
    """Milliseconds per image for each batch size, everything included: pictures, prefill, decoding, evidence.

    By the wall clock: pictures are read by other threads while the model works, and an idle core should show.
    """

    def run(batch: int) -> Variant:
        return lambda: calibrate(
            model, processor, images, batch_size=batch, max_new_tokens=max_new_tokens, show=False
        )

    case = f"{type(model).__name__}, {len(images)} images"
    variants = {f"batch {batch}": run(batch) for batch in batches}
    timings = rounds.compare(f"calibration, {case}", variants, warm=0, clock=time.perf_counter)
    alone = timings[f"batch {batches[0]}"]
    for batch in batches:
        timing = timings[f"batch {batch}"]
        yield Measurement(
            "calibration",
            case,
            f"batch {batch}",
            timing.per(1e6 * len(images)),
            "ms per image",
            None if timing is alone else timing.over(alone),
            f"batch {batches[0]}",
            GOAL if batch == max(batches) else None,
        )
