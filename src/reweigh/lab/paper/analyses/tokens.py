"""Token component of evidence: how much of DMRR's variability comes from the token rather than the image.

Observations are the DMRR of candidate occurrences in calibration. With token means m_t over n_t observations and the grand
mean m, the total sum of squares splits into

    between tokens  SSB = sum_t n_t (m_t - m)^2          within a token  SSW = sum_t sum_i (x_ti - m_t)^2

and the frame has their shares. Image-balanced: each (token, image) pair once, tokens seen in at least M images.
Occurrence-weighted: every occurrence. Intraclass correlations on the pairs of tokens with at least 5 images, k tokens and N
pairs, variances with ddof 1:

    simple  var_b / (var_b + var_w),  var_b of the token means, var_w the mean within-token variance
    ANOVA   (MSB - MSW) / (MSB + (n0 - 1) MSW),  n0 = (N - sum n_t^2 / N) / (k - 1)

Intervals draw calibration images; which tokens count is fixed on the full sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.bootstrap import SEED, Times, bootstrap
from reweigh.lab.enough import too_few
from reweigh.lab.frame import Frame, Row
from reweigh.lab.paper.material import Material
from reweigh.lab.paper.study import Dots, Filled, Study, least_images, percent, row
from reweigh.tables.observations import Observations

LEAST = (1, 2, 5, 10)
PRIMARY = 5
BALANCED, WEIGHTED = "image-balanced", "occurrence-weighted"
BETWEEN, WITHIN, SIMPLE, ANOVA = "between tokens", "within a token", "ICC simple", "ICC ANOVA"
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sample:
    """Values with the token and the image of each, and how often each counts; tokens are numbered from 0."""

    token: NDArray[np.int64]
    image: NDArray[np.int64]
    value: Floats
    weight: Floats

    @classmethod
    def of(cls, observations: Observations, *, least: int = 1, balanced: bool = True) -> Sample:
        """Take the observations of the first layer, without tokens seen in fewer than ``least`` images."""
        _, token, seen = np.unique(observations.token, return_inverse=True, return_counts=True)
        kept = seen[token] >= least
        _, renumbered = np.unique(token[kept], return_inverse=True)
        weight = np.ones(int(kept.sum())) if balanced else observations.count[kept].astype(np.float64)
        value = observations.values[0][kept].astype(np.float64)
        return cls(renumbered, observations.image[kept].astype(np.int64), value, weight)

    @property
    def tokens(self) -> int:
        """Distinct tokens."""
        return int(self.token.max()) + 1 if len(self.token) else 0


@dataclass(frozen=True)
class Squares:
    """What all figures are made of: for each token present its weight, mean and sum of squares around it."""

    n: Floats
    mean: Floats
    within: Floats

    @classmethod
    def of(cls, sample: Sample, times: Times | None = None) -> Squares:
        """Sum the squares of a sample, each image counted as often as it was drawn."""
        weight = sample.weight if times is None else sample.weight * times[sample.image]

        def summed(values: Floats) -> Floats:
            return np.bincount(sample.token, values, minlength=sample.tokens).astype(np.float64)

        n, total = summed(weight), summed(weight * sample.value)
        mean = np.divide(total, n, out=np.zeros_like(n), where=n > 0)
        within = summed(weight * (sample.value - mean[sample.token]) ** 2)
        there = n > 0
        return cls(n[there], mean[there], within[there])

    @property
    def between(self) -> float:
        """SSB."""
        grand = np.average(self.mean, weights=self.n)
        return float((self.n * (self.mean - grand) ** 2).sum())

    def shares(self) -> dict[str, float]:
        """Return the shares of the total sum of squares."""
        between, within = self.between, float(self.within.sum())
        total = between + within
        if not total:
            return {BETWEEN: float("nan"), WITHIN: float("nan")}
        return {BETWEEN: between / total, WITHIN: within / total}

    def correlations(self) -> dict[str, float]:
        """Return both intraclass correlations; NaN if there are too few tokens or pairs."""
        k, count = len(self.n), float(self.n.sum())
        repeated = self.n > 1
        if k < 2 or count <= k or not repeated.any():
            return {SIMPLE: float("nan"), ANOVA: float("nan")}
        var_b = float(np.var(self.mean, ddof=1))
        var_w = float((self.within[repeated] / (self.n[repeated] - 1)).mean())
        msb, msw = self.between / (k - 1), float(self.within.sum()) / (count - k)
        n0 = (count - float((self.n**2).sum()) / count) / (k - 1)
        below = msb + (n0 - 1) * msw
        return {
            SIMPLE: var_b / (var_b + var_w) if var_b + var_w else float("nan"),
            ANOVA: (msb - msw) / below if below else float("nan"),
        }


def repeated_tokens(material: Material) -> str | None:
    """Require two tokens that are seen in several calibration images."""
    seen = Sample.of(material.observations(), least=PRIMARY)
    return None if seen.tokens > 1 else f"fewer than two tokens are seen in {PRIMARY} images"


def sample_name(one: Row) -> str:
    """Name a sample as the paper does."""
    least = one["least_images"]
    balanced = f"min. {least} image{'' if least == 1 else 's'}"
    return balanced if one["weighting"] == BALANCED else "occurrence weighted"


class Tokens(Study):
    """Shares of the sum of squares between and within tokens, and intraclass correlations."""

    name = "tokens"
    title = "Token component of evidence"
    labels = ("fig:token-decomposition", "tab:variance-decomposition")
    keys = (
        ("quantity", "share between tokens or within a token, or an intraclass correlation"),
        ("weighting", "image-balanced or occurrence-weighted"),
        ("least_images", "images that a token must be seen in"),
        ("tokens", "tokens that count"),
        ("observations", "observations that count"),
    )
    panels = (Dots("share of the sum of squares between tokens", {"quantity": BETWEEN}, sample_name),)
    needs = (lambda material: least_images(material.calibration, "calibration images"), repeated_tokens)

    def compute(self, material: Material) -> Frame:
        found = decompose(material.observations(), **material.draws)
        return Frame(found.rows, {"on": f"{len(material.calibration):,} calibration images"})

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        [primary] = frame.pick(quantity=BETWEEN, weighting=BALANCED, least_images=PRIMARY)
        every = frame.one(quantity=BETWEEN, weighting=WEIGHTED)
        simple, anova = (frame.one(quantity=name) for name in (SIMPLE, ANOVA))
        low = primary.estimate.low
        few = too_few(len(material.observations().images), kind="calibration images")
        verdict = (
            "As in the paper, most of the variability comes from the token: the first interval lies above 50%."
            if low is not None and low > 0.5
            else "The paper finds that most of the variability comes from the token; this is not confirmed here: the first "
            "interval does not lie above 50%."
        )
        return [
            f"{percent(primary.estimate).text(digits=1, unit='%')} of DMRR's variability lies between tokens, counting "
            f"each pair of token and image once ({primary['tokens']} tokens seen in at least {PRIMARY} images); counting "
            f"every occurrence, {percent(every).text(digits=1, unit='%')}.",
            f"The intraclass correlation of token identity is {simple.text(digits=3)} (simple) and {anova.text(digits=3)} "
            "(ANOVA).",
            verdict
            if few is None
            else f"Whether most of the variability comes from the token cannot be decided here: {few}.",
        ]

    def entries(self, frame: Frame) -> Iterator[Filled]:
        metrics = {BETWEEN: "between %", WITHIN: "within %"}
        for one in frame:
            quantity = str(one["quantity"])
            if quantity in metrics:
                yield Filled(sample_name(one), metrics[quantity], percent(one.estimate))
            else:
                yield Filled("ICC", quantity.removeprefix("ICC "), one.estimate)


def decompose(observations: Observations, *, resamples: int, seed: int = SEED) -> Frame:
    """Compute shares and correlations of some observations."""
    rows: list[Row] = []
    for weighting, least in [*((BALANCED, least) for least in LEAST), (WEIGHTED, 1)]:
        sample = Sample.of(observations, least=least, balanced=weighting == BALANCED)
        if not sample.tokens:
            continue
        both = weighting == BALANCED and least == PRIMARY

        def figures(times: Times, sample: Sample = sample, both: bool = both) -> dict[str, float]:
            found = Squares.of(sample, times)
            return found.shares() | (found.correlations() if both else {})

        drawn = bootstrap(len(observations.images), figures, resamples=resamples, seed=seed)
        counts = {"tokens": sample.tokens, "observations": int(sample.weight.sum())}
        rows += [
            row(value, quantity=name, weighting=weighting, least_images=least, **counts)
            for name, value in drawn.items()
        ]
    return Frame(rows)
