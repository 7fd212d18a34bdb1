"""Measure quantile sketches side by side on evidence-like values: size, speed, rank error, and whether merging is exact.

pip install datasketches==5.2.0 fastdigest==0.12.0 crick==0.0.8, then python scripts/sketch_libraries.py [--values N]
What is not installed is left out and named. Times are of one token's values, in shards of equal size.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.tables.binned import Binned
from reweigh.tables.bins import Bins, count_bins, merge_bins
from reweigh.tables.sketches import BINS, Sketches, digests, limits

Values = NDArray[np.float32]
SPREADS = (0.05, 0.3, 1.0, 2.0)
"""Standard deviations of the values' logarithm."""
TRIALS = 3


@dataclass(frozen=True)
class Kind:
    """A sketch: how it is made, merged into another one, written, and asked for its median.

    ``bound`` is what its library says of the rank error, ``stated`` what this very sketch does.
    """

    name: str
    make: Callable[[Values], Any]
    merge: Callable[[Any, Any], Any]
    write: Callable[[Any], bytes]
    median: Callable[[Any], float]
    bound: str
    stated: Callable[[Any], float] | None = None


def own(most: int) -> Kind:
    """This package's counted bins."""

    def limit(owner: NDArray[np.int64]) -> NDArray[np.int64]:
        return limits(owner, most)

    def make(values: Values) -> Bins:
        one = np.ones(len(values), np.int64)
        return count_bins(one, values, one, limit)

    def seen(bins: Bins) -> Binned:
        [(_, found)] = Sketches((0,), digests([]), bins, most).tokens(0)
        return found

    return Kind(
        f"bins {most}",
        make,
        lambda one, other: merge_bins([one, other], limit),
        lambda bins: bins.edge.tobytes() + bins.count.tobytes(),
        lambda bins: seen(bins).median().value,
        "of ranks at most, certain",
        lambda bins: seen(bins).rank_error(),
    )


def datasketches() -> list[Kind]:
    """KLL, REQ and t-digest of Apache DataSketches."""
    library = importlib.import_module("datasketches")

    def kind(name: str, new: Callable[[], Any], bound: str) -> Kind:
        def make(values: Values) -> Any:
            made = new()
            made.update(values)
            return made

        def merge(one: Any, other: Any) -> Any:
            one.merge(other)
            return one

        return Kind(
            name, make, merge, lambda one: bytes(one.serialize()), lambda one: one.get_quantile(0.5), bound
        )

    found = []
    for k in (200, 1000):
        error = library.kll_floats_sketch(k).normalized_rank_error(False)
        found.append(
            kind(f"KLL k={k}", lambda k=k: library.kll_floats_sketch(k), f"{error:.2%} of ranks, 99% likely")
        )
    found.append(kind("REQ k=12", lambda: library.req_floats_sketch(12), "by rank, 2 sigma"))
    found.append(kind("t-digest k=200", lambda: library.tdigest_float(200), "none"))
    return found


def fastdigest() -> list[Kind]:
    """The t-digest of fastdigest."""
    digest = importlib.import_module("fastdigest").TDigest
    return [
        Kind(
            "fastdigest 1000",
            lambda values: digest.from_values(values.astype(np.float64), max_centroids=1000),
            lambda one, other: one.merge(other),
            lambda one: bytes(one.to_bytes()),
            lambda one: one.quantile(0.5),
            "none",
        )
    ]


def crick() -> list[Kind]:
    """The t-digest of crick."""
    digest = importlib.import_module("crick").TDigest

    def make(values: Values) -> Any:
        made = digest(200)
        made.update(values)
        return made

    def merge(one: Any, other: Any) -> Any:
        one.merge(other)
        return one

    return [
        Kind(
            "crick 200",
            make,
            merge,
            lambda one: one.centroids().tobytes(),
            lambda one: one.quantile(0.5),
            "none",
        )
    ]


def measured(kind: Kind, streams: Sequence[Values], shards: int) -> str:
    """A line of the table."""
    update, merging, size, again, ordered = 0.0, 0.0, 0, True, True
    errors, stated = [], []
    for values in streams:
        parts = np.array_split(values, shards)
        begin = time.perf_counter()
        made = [kind.make(part) for part in parts]
        update += time.perf_counter() - begin
        written = [kind.write(one) for one in made]
        again &= all(kind.write(kind.make(part)) == text for part, text in zip(parts, written, strict=True))
        begin = time.perf_counter()
        whole = united(kind, made)
        merging += time.perf_counter() - begin
        ordered &= kind.write(whole) == kind.write(
            united(kind, [kind.make(part) for part in reversed(parts)])
        )
        size = max(size, len(kind.write(whole)))
        found = np.float32(kind.median(whole))
        below, through = float((values < found).mean()), float((values <= found).mean())
        errors.append(max(0.0, below - 0.5, 0.5 - through))
        stated += [] if kind.stated is None else [kind.stated(whole)]
    bound = f"{max(stated):.2%} {kind.bound}" if stated else kind.bound
    count = sum(map(len, streams))
    merges = (shards - 1) * len(streams)
    return (
        f"{kind.name:16} {size:8,} {1e9 * update / count:9.0f} {1e6 * merging / merges:9.0f} {max(errors):9.3%} "
        f"{'yes' if again else 'no':>6} {'yes' if ordered else 'no':>6}  {bound}"
    )


def together(dice: np.random.Generator, tokens: int) -> float:
    """Seconds in which counted bins of many tokens, all full, are merged, for each token."""

    def limit(owner: NDArray[np.int64]) -> NDArray[np.int64]:
        return limits(owner, BINS)

    owner = np.repeat(np.arange(1, tokens + 1), 4 * BINS)
    one = np.ones(len(owner), np.int64)
    full = [
        count_bins(
            owner, np.exp(dice.normal(-5, 1, len(owner))).clip(2**-15, 1).astype(np.float32), one, limit
        )
        for _ in range(2)
    ]
    begin = time.perf_counter()
    merge_bins(full, limit)
    return (time.perf_counter() - begin) / tokens


def united(kind: Kind, parts: Sequence[Any]) -> Any:
    """All parts in one, in their order."""
    whole = parts[0]
    for part in parts[1:]:
        whole = kind.merge(whole, part)
    return whole


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--values", type=int, default=200_000, help="values of a token")
    asked.add_argument("--shards", type=int, default=16)
    asked.add_argument("--tokens", type=int, default=500, help="tokens that are merged at once")
    given = asked.parse_args()
    dice = np.random.default_rng(0)
    streams = [
        np.exp(dice.normal(-5, spread, given.values)).clip(2**-15, 1).astype(np.float32)
        for spread in SPREADS
        for _ in range(TRIALS)
    ]
    kinds, absent = [own(BINS), own(256)], []
    for library in (datasketches, fastdigest, crick):
        try:
            kinds += library()
        except ImportError as error:
            absent.append(str(error))
    write(f"{len(streams)} streams of {given.values:,} log-normal values each, {given.shards} shards\n")
    write(
        f"{'':16} {'bytes':>8} {'ns/value':>9} {'us/merge':>9} {'rank err':>9} {'again':>6} {'order':>6}  stated bound"
    )
    for kind in kinds:
        write(measured(kind, streams, given.shards))
    write(
        f"bins {BINS}, {given.tokens} tokens at once: {1e6 * together(dice, given.tokens):.0f} us/merge of a token"
    )
    write("\nagain: the same values give the same bytes; order: shards merged in another order do")
    for reason in absent:
        write(f"left out: {reason}")


def write(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
