"""Choices without labels held against choices with them: how far they agree, what they cost, what the checks notice.

A choice is made on images drawn with replacement and judged by labels on the images that were not drawn. So every figure
of a choice is one on other pictures, and nothing is answered again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reweigh.benchmarks.bootstrap import Array
from reweigh.errors import InputError
from reweigh.experiments.tune.labelfree.arrays import Arrays, quality_of
from reweigh.experiments.tune.labelfree.controls import CONTROLS, Control, Rated
from reweigh.experiments.tune.labelfree.worse import WORSE, Spoil, Worse, itself
from reweigh.experiments.tune.search import BASE, BOUND, FIGURES, Key, Quality, choose, judge, relative_gain
from reweigh.paper.analyses.rescaling import spearman
from reweigh.paper.studies.bootstrap import interval
from reweigh.results.tables import Estimate

SIZES = (50, 100)
"""Numbers of pictures that a choice is also tried on."""

NOTICED, LOST = 0.5, 0.2
"""A row is blind where this share of the gain is lost and refusals and warnings come in fewer than that share of draws."""


@dataclass(frozen=True)
class Held:
    """One verifier over all draws; figures are means, estimates have the percentiles of the draws.

    Attributes:
        name: Who answered, or how.
        accuracy: Share of right answers among the questions, in percent.
        rho: Rank correlation over the points of the gain by its answers with the true one.
        gain: True gain of its choices on images they were not made on, in percent.
        regret: The same of the labels' choices minus its own.
        chair_i, f1: Its choices' CHAIR_I and F1 minus those of the labels' choices, in points.
        f, j, d0: As in ``Trust``.
        refused, warned: Shares of draws in which no choice is made, or a warning given.
    """

    name: str
    accuracy: float
    rho: float
    gain: Estimate
    regret: Estimate
    chair_i: Estimate
    f1: Estimate
    f: float
    j: float
    d0: float
    refused: float
    warned: float

    @property
    def blind(self) -> bool:
        """Whether it loses much of the gain and hardly ever says so."""
        best = self.gain.value + self.regret.value
        return self.regret.value > LOST * best and max(self.refused, self.warned) < NOTICED


@dataclass(frozen=True)
class Tried:
    """A control over all draws: its name, and ``rho``, ``gain`` and ``regret`` as in ``Held``."""

    name: str
    rho: float
    gain: Estimate
    regret: Estimate


@dataclass(frozen=True)
class Against:
    """A search without labels held against one with them.

    Attributes:
        images, questions, draws: How many there were.
        pooled: Share of the true objects that some description mentions, in percent.
        correlation: Rank correlation over the points of each figure, and of the gain, with the true one.
        chosen: The points chosen on all images, by labels and by the verifier.
        labels: True gain of the labels' choices on images they were not made on.
        rows: The verifier itself, on all images and on fewer; then worse ones.
        controls: Choices that ask nobody, or that correct the answers.
    """

    images: int
    questions: int
    draws: int
    pooled: float
    correlation: Mapping[str, float]
    chosen: tuple[Key, Key]
    labels: Estimate
    rows: tuple[Held, ...]
    controls: tuple[Tried, ...]


def hold_against_labels(
    search: Arrays,
    *,
    bound: float = BOUND,
    draws: int = 100,
    seed: int = 42,
    worse: Sequence[Worse] = WORSE,
    sizes: Sequence[int] = SIZES,
    controls: Sequence[Control] = CONTROLS,
) -> Against:
    """Hold the verifier's choices, those of worse ones and of controls against the labels', over the same draws."""
    if search.images < 2:
        raise InputError("one image is nothing to draw from", hint="take more records")
    once = np.ones(search.images)
    own = quality_of(search.counted(itself(search, once)), once)
    true = quality_of(search.labelled, once)
    pairs = {name: (own[name], true[name]) for name in FIGURES} | {"gain": (_gains(own), _gains(true))}
    whole = _Draws(search, bound, draws, seed, search.images)
    rows = [whole.hold("the verifier itself", itself)]
    for size in sizes:
        if size < search.images:
            rows.append(
                _Draws(search, bound, draws, seed, size).hold(f"the verifier, {size} pictures", itself)
            )
    rows += [whole.hold(one.name, one.answers) for one in worse]
    there = search.labelled["reference"][0].sum()
    return Against(
        images=search.images,
        questions=len(search.image),
        draws=draws,
        pooled=float(100 * (search.pooled & search.true).sum() / there) if there else float("nan"),
        correlation={name: _rank_correlation(*pair) for name, pair in pairs.items()},
        chosen=(search.keys[_choose(search, true, bound)], search.keys[_choose(search, own, bound)]),
        labels=_estimate(whole.gains[np.arange(draws), whole.by_labels]),
        rows=tuple(rows),
        controls=tuple(whole.control(one) for one in controls),
    )


class _Draws:
    """Draws of so many images: what labels choose on each, and what every point truly gains on the images left out."""

    def __init__(self, search: Arrays, bound: float, draws: int, seed: int, size: int) -> None:
        self.search, self.bound, self.seed = search, bound, seed
        generator = np.random.default_rng(seed)
        share = np.full(search.images, 1 / search.images)
        self.times = generator.multinomial(size, share, size=draws).astype(float)  # (R, I)
        self.by_labels = [_choose(search, quality_of(search.labelled, times), bound) for times in self.times]
        others = [quality_of(search.labelled, (times == 0).astype(float)) for times in self.times]
        self.gains = np.array([100 * _gains(one) for one in others])  # (R, P)
        self.figures = {name: np.array([one[name] for one in others]) for name in ("chair_i", "f1")}
        self.true = _gains(quality_of(search.labelled, np.ones(search.images)))

    def hold(self, name: str, answers: Spoil) -> Held:
        """Let a verifier choose on every draw."""
        search, every = self.search, np.arange(len(self.times))
        chosen, accuracy, rho, trusts = [], [], [], []
        for times, chance in zip(self.times, self._chances(), strict=True):
            affirmed = answers(search, chance)
            counts = search.counted(affirmed)
            chosen.append(_choose(search, quality_of(counts, times), self.bound))
            accuracy.append(100 * float((affirmed == search.true).mean()))
            rho.append(_rank_correlation(_gains(quality_of(counts, np.ones(search.images))), self.true))
            trusts.append(search.trust(affirmed, times))
        gain, best = self.gains[every, chosen], self.gains[every, self.by_labels]
        lost = {
            figure: _estimate(values[every, chosen] - values[every, self.by_labels])
            for figure, values in self.figures.items()
        }
        return Held(
            name=name,
            accuracy=_mean(accuracy),
            rho=_mean(rho),
            gain=_estimate(gain),
            regret=_estimate(best - gain),
            **lost,
            f=_mean([one.f for one in trusts]),
            j=_mean([one.j for one in trusts]),
            d0=_mean([one.d0 for one in trusts]),
            refused=_mean([float(one.refusal() is not None) for one in trusts]),
            warned=_mean([float(bool(one.noticed())) for one in trusts]),
        )

    def control(self, one: Control) -> Tried:
        """Let a control choose on every draw."""
        search, once = self.search, np.ones(self.search.images)
        chosen, rho = [], []
        for times, chance in zip(self.times, self._chances(), strict=True):
            chosen.append(_pick(search, one.rate(search, times, chance), self.bound))
            rho.append(_rank_correlation(_scores(one.rate(search, once, chance)), self.true))
        every = np.arange(len(self.times))
        gain, best = self.gains[every, chosen], self.gains[every, self.by_labels]
        return Tried(one.name, _mean(rho), _estimate(gain), _estimate(best - gain))

    def _chances(self) -> Iterator[Array]:
        """Uniform draws for the questions, the same for every verifier, so that rates of one kind can be compared."""
        generator = np.random.default_rng(self.seed + 1)
        for _ in self.times:
            yield generator.random((3, len(self.search.image)))


def _gains(quality: Mapping[str, Array]) -> Array:
    """Gain of every point over the base, which is the first, (P,)."""
    return relative_gain(quality, {name: one[:1] for name, one in quality.items()})


def _choose(search: Arrays, quality: Mapping[str, Array], bound: float) -> int:
    """The place of the point that the rule chooses; 0 is the base."""
    every = [
        Quality(
            **{name: None if np.isnan(one[place]) else float(one[place]) for name, one in quality.items()}
        )
        for place in range(len(search.keys))
    ]
    points = [
        judge(layer, beta, one, every[0], bound)
        for (layer, beta), one in zip(search.keys, every, strict=True)
        if layer is not None
    ]
    found = choose(points)
    return search.keys.index(BASE if found is None else (found.layer, found.beta))


def _scores(rated: Rated) -> Array:
    """One number for each point: its gain by the figures, or the number it was given."""
    return _gains(rated) if isinstance(rated, Mapping) else rated


def _pick(search: Arrays, rated: Rated, bound: float) -> int:
    """The place of the point that the rule chooses by figures, or of the first of highest number."""
    return _choose(search, rated, bound) if isinstance(rated, Mapping) else int(np.nanargmax(rated))


def _rank_correlation(first: Array, second: Array) -> float:
    """Spearman's correlation over the points that have both values."""
    known = ~(np.isnan(first) | np.isnan(second))
    return spearman(first[known], second[known])


def _estimate(drawn: Array) -> Estimate:
    """The mean of draws with their percentiles; undefined draws are left out."""
    return interval(_mean(drawn.tolist()), drawn)


def _mean(values: Sequence[float | None]) -> float:
    known = [one for one in values if one is not None and not np.isnan(one)]
    return float(np.mean(known)) if known else float("nan")
