"""What the most confident mentions lack: onsets in the top quartile of output confidence and their evidence deficits.

An onset is in the top quartile if its probability is at least the 75th percentile (linear interpolation) of all onsets.
Its deficit is max(b(v) - DMRR, 0) / b0, not clipped above, and exists where the onset's token is registered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUARTILE = 0.75


@dataclass(frozen=True)
class Onsets:
    """Mention onsets of all images.

    Attributes:
        image: (n,) index of the image.
        probability: (n,) of the emitted token.
        hallucinated: (n,) whether the mention is.
        deficit: (n,) in units of b0, at least 0; NaN where the token is not registered.
    """

    image: NDArray[np.int64]
    probability: NDArray[np.float64]
    hallucinated: NDArray[np.bool_]
    deficit: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.image)

    def drawn(self, times: NDArray[Any]) -> Onsets:
        """The onsets of resampled images; ``times`` says how often each image was drawn."""
        rows = np.repeat(np.arange(len(self)), np.asarray(times, dtype=np.int64)[self.image])
        return Onsets(self.image[rows], self.probability[rows], self.hallucinated[rows], self.deficit[rows])


def top_quartile(onsets: Onsets) -> NDArray[np.bool_]:
    """Which onsets are in the top quartile of confidence."""
    if not len(onsets):
        return np.zeros(0, dtype=bool)
    return np.asarray(onsets.probability >= np.quantile(onsets.probability, QUARTILE))


def deficits(onsets: Onsets) -> dict[str, float]:
    """Share hallucinated in percent, median deficits of both kinds and their difference; NaN where there is none."""
    top = top_quartile(onsets)
    chosen = onsets.hallucinated[top]
    medians = {}
    for name, kind in (("hallucinated", chosen), ("grounded", ~chosen)):
        values = onsets.deficit[top][kind]
        values = values[~np.isnan(values)]
        medians[name] = float(np.median(values)) if len(values) else float("nan")
    share = 100.0 * float(chosen.mean()) if len(chosen) else float("nan")
    return {"share": share, **medians, "difference": medians["hallucinated"] - medians["grounded"]}
