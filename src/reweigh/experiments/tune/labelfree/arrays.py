"""A search with labels and verdicts as arrays, so that hundreds of worse verifiers and resamples are counted in seconds.

P points (the base first), I images, K questions: an object of an image that some point mentions, or a known absent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.benchmarks.base import Item
from reweigh.benchmarks.bootstrap import Array
from reweigh.benchmarks.chair.metrics import figures
from reweigh.experiments.tune.labelfree.figures import NEIGHBOURS, neighbours, pools
from reweigh.experiments.tune.labelfree.verified import Trust, Verified
from reweigh.experiments.tune.search import BASE, FIGURES, Key

Flags = NDArray[np.bool_]
COUNTS = (
    "captions",
    "hallucinated_captions",
    "mentions",
    "hallucinated_mentions",
    "recovered",
    "reference",
)
"""CHAIR's counts that the four figures need."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """What was said, answered and true.

    Attributes:
        keys: The points; the base comes first.
        image: Which image each question is about, ascending, (K,).
        said: How often each point mentions the object, (P, K).
        gaps: How strongly the verifier affirms it, (K,).
        true: Whether it is there, (K,).
        absent: Whether it was asked as a known absent, (K,).
        typical: Whether two of the eight most similar images' descriptions mention it, (K,).
        labelled: CHAIR's counts by labels, each (P, I).
    """

    keys: tuple[Key, ...]
    image: NDArray[np.int64]
    said: Array
    gaps: Array
    true: Flags
    absent: Flags
    typical: Flags
    labelled: Mapping[str, Array]

    @classmethod
    def of(cls, verified: Verified, items: Mapping[Key, Sequence[Item]]) -> Arrays:
        """From a search without labels and the same runs scored by labels, images in the same order."""
        keys = (BASE, *(key for key in verified.points if key != BASE))
        pool = pools(verified.points)
        usual = [Counter(name for other in near for name in pool[other]) for near in neighbours(pool)]
        truth = [set(item.details["reference"]) for item in items[BASE]]
        asked = [
            (image, name)
            for image, names in enumerate(pool)
            for name in sorted(names | set(verified.absents[image]))
        ]
        return cls(
            keys,
            np.array([image for image, _ in asked], dtype=np.int64),
            np.array([[verified.points[key][i][name] for i, name in asked] for key in keys], dtype=float),
            np.array([verified.gaps[i][name] for i, name in asked], dtype=float),
            np.array([name in truth[i] for i, name in asked], dtype=bool),
            np.array([name in verified.absents[i] for i, name in asked], dtype=bool),
            np.array([usual[i][name] >= NEIGHBOURS / 4 for i, name in asked], dtype=bool),
            {
                name: np.array([[item.counts[name] for item in items[key]] for key in keys], dtype=float)
                for name in COUNTS
            },
        )

    @property
    def images(self) -> int:
        """I."""
        return int(self.labelled["captions"].shape[1])

    @cached_property
    def pooled(self) -> Flags:
        """Whether any point mentions the object, (K,)."""
        return np.asarray((self.said > 0).any(axis=0))

    @cached_property
    def common(self) -> Flags:
        """Whether every point mentions the object, (K,)."""
        return np.asarray((self.said > 0).all(axis=0))

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Where the questions of each image begin, and where the last ones end, (I + 1,)."""
        return np.searchsorted(self.image, np.arange(self.images + 1))

    def by_image(self, values: NDArray[Any]) -> Array:
        """Sums over the questions of each image, (..., K) to (..., I)."""
        sums = np.cumsum(values, axis=-1, dtype=float)
        sums = np.concatenate([np.zeros((*sums.shape[:-1], 1)), sums], axis=-1)
        return np.asarray(np.diff(sums[..., self._ends], axis=-1))

    def counted(self, affirmed: Flags) -> dict[str, Array]:
        """CHAIR's counts with affirmed objects as those that are there, each (P, I)."""
        denied = self.by_image(self.said * ~affirmed)
        return {
            "captions": np.ones_like(denied),
            "hallucinated_captions": (denied > 0).astype(float),
            "mentions": self.by_image(self.said),
            "hallucinated_mentions": denied,
            "recovered": self.by_image((self.said > 0) & affirmed),
            "reference": np.broadcast_to(self.by_image(self.pooled & affirmed), denied.shape),
        }

    def trust(self, affirmed: Flags, times: Array) -> Trust:
        """What the answers tell of the verifier, each image counted ``times``, (I,)."""
        often = times[self.image]
        said = often * self.said[0]
        denied = float((said * ~affirmed).sum())
        shares = [
            float((often * (asked & affirmed)).sum() / total) if (total := (often * asked).sum()) else None
            for asked in (self.common, self.absent)
        ]
        d0 = 100 * denied / said.sum() if said.sum() else None
        return Trust(shares[0], shares[1], d0, round(denied), len(self.image))


def quality_of(counts: Mapping[str, Array], times: Array) -> dict[str, Array]:
    """The four figures of every point, (P,), each image counted ``times``, (I,)."""
    return quality_of_sums({name: one @ times for name, one in counts.items()})


def quality_of_sums(sums: Mapping[str, Array]) -> dict[str, Array]:
    """The four figures of every point from CHAIR's counts over all images, each (P,)."""
    known: defaultdict[str, Array] = defaultdict(lambda: np.zeros(()), sums)
    found = figures(known)
    return {name: found[name] for name in FIGURES}
