"""What a calibration of many images costs on many GPUs, and what limits it: arithmetic on rates somebody measured."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from reweigh.calibration.complete import Observed
from reweigh.calibration.corpus import open_corpus
from reweigh.calibration.resume import Work
from reweigh.errors import InputError
from reweigh.scale.simulate import Conditions, expected_seconds
from reweigh.tables.sketches import BINS, DIGEST, POOLED

REPEATS = 5
"""Parts that are kept to measure how long it takes."""

PAIR_BYTES = 20
"""Bytes that an image's observations take for each of its tokens, read at one layer."""

BIN_BYTES, OWNER_BYTES = 12, 17
"""Bytes of a bin, and of what a sketch says of each token besides."""

FOLDER_LIMIT = 1_000_000
"""Parts that one folder is asked to hold."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What one machine was measured at.

    Attributes:
        image_seconds: Time of an image on one worker.
        hash_seconds: Time in which the driver hashes an image.
        part_seconds: Time in which the driver keeps a part of a run.
        image_bytes: Bytes of an image's observations.
    """

    image_seconds: float
    hash_seconds: float
    part_seconds: float
    image_bytes: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < math.inf:
                raise InputError(
                    f"{name.replace('_', ' ')} cannot be {value:g}", hint="rates are positive numbers"
                )


@dataclass(frozen=True)
class Cost:
    """Seconds from beginning to end, the share of the GPUs' time that was work, bytes, and what limits."""

    images: int
    gpus: int
    seconds: float
    efficiency: float
    bytes: float
    limit: str


def cost(images: int, gpus: int, rates: Rates, conditions: Conditions, *, batch: int, memory: float) -> Cost:
    """The cost of a calibration whose driver may hold ``memory`` bytes of observations.

    Hashing comes first; parts are kept while workers work.
    """
    parts = -(-images // batch)
    hashing, keeping = images * rates.hash_seconds, parts * rates.part_seconds
    working = expected_seconds(parts, gpus, conditions)
    ideal = images * rates.image_seconds / gpus
    seconds = hashing + max(working, keeping)
    limits = {
        "driver's memory": images * rates.image_bytes > memory,
        "files in a folder": parts > FOLDER_LIMIT,
        "driver's disk": keeping > working,
        "driver's hashing": hashing > working,
        "too few shards": parts < 4 * gpus,
    }
    limit = next((name for name, holds in limits.items() if holds), "GPUs")
    return Cost(images, gpus, seconds, ideal / seconds, images * rates.image_bytes, limit)


def sketch_bytes(images: int, vocabulary: int, rates: Rates, *, bins: int = BINS) -> float:
    """The most that sketches of one layer can take: no more bins than observations, nor than every token may have."""
    pairs = images * rates.image_bytes / PAIR_BYTES
    kept = min(pairs, vocabulary * bins) + min(pairs, POOLED)
    return BIN_BYTES * kept + OWNER_BYTES * min(pairs, vocabulary) + DIGEST * images


def measure_driver(images: Path, observed: Observed, layers: Sequence[int], folder: Path) -> dict[str, float]:
    """Measure what the driver does for each image and part: hash the images of a folder, keep a real part, several times."""
    start = time.perf_counter()
    corpus = open_corpus(images)
    hashing = (time.perf_counter() - start) / len(corpus)
    work = Work(folder, {"corpus": corpus.hash}, tuple(layers))
    start = time.perf_counter()
    for number in range(REPEATS):
        work.write_part(number, *observed)
    keeping = (time.perf_counter() - start) / REPEATS
    size = sum(array.nbytes for row in observed[0] for array in (row.token, row.count, row.values)) / len(
        observed[0]
    )
    return {"hash_seconds": hashing, "part_seconds": keeping, "image_bytes": size}
