"""The rule that chooses an operating point, against hand-made grids and a twin that tries everything."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.lab.arms.tune import search as searching
from reweigh.lab.arms.tune.run import parse_numbers
from reweigh.lab.arms.tune.search import BETAS, FIGURES, Point, choose, gain, judge, midpoint
from reweigh.lab.estimate import Estimate
from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.base import Summary


def quality(*values: float | None) -> dict[str, Estimate]:
    return dict(zip(FIGURES, map(Estimate, values), strict=True))


BASE = quality(50.0, 10.0, 80.0, 80.0)


def twin_gain(now, base) -> float:
    (s, i, recall, f1), (base_s, base_i, base_recall, base_f1) = (
        [one[name].value for name in FIGURES] for one in (now, base)
    )
    lower = (base_s - s) / base_s + (base_i - i) / base_i
    return (lower + (recall - base_recall) / base_recall + (f1 - base_f1) / base_f1) / 4


def point(layer: int, beta: float, gained: float | None, eligible: bool = True) -> Point:
    return Point({"layer": layer, "beta": beta}, BASE, gained, eligible)


def judged(layer: int, beta: float, *rest) -> Point:
    return judge({"layer": layer, "beta": beta}, *rest)


def search(ask, base, **grid):
    """Search over figures that ``ask`` makes up; there are no items to draw from."""
    scored = {}

    def score(points):
        for where in points:
            metrics = base if where == searching.BASE else ask(*where)
            scored[where] = Scored([], Summary.of([], benchmark="world", metrics=metrics))
        return scored

    return searching.search(score, lambda counts: {}, "world", **grid)


def chosen_of(points):
    """The choice of a search, which prefers the smaller beta."""
    return choose(sorted(points, key=lambda one: one.where[::-1]))


def test_gain_is_the_mean_of_four_relative_improvements():
    assert gain(quality(25.0, 10.0, 80.0, 80.0), BASE) == pytest.approx(0.5 / 4)
    assert gain(quality(50.0, 12.0, 80.0, 80.0), BASE) == pytest.approx(-0.2 / 4)
    assert gain(quality(50.0, 10.0, 88.0, 84.0), BASE) == pytest.approx((0.1 + 0.05) / 4)
    assert gain(BASE, BASE) == 0


def test_a_figure_whose_base_is_zero_counts_in_points():
    clean = quality(0.0, 0.0, 80.0, 80.0)
    assert gain(clean, clean) == 0
    assert gain(quality(2.0, 0.0, 80.0, 80.0), clean) == -0.5


def test_a_point_is_eligible_down_to_the_bound():
    at = judged(1, 0.5, quality(40.0, 8.0, 79.0, 79.5), BASE, 0.5)
    below = judged(1, 0.5, quality(1.0, 1.0, 79.0, 79.49), BASE, 0.5)
    assert at.eligible
    assert not below.eligible
    assert below.gain > at.gain


def test_a_point_without_a_figure_is_never_eligible():
    silent = judged(1, 9.0, quality(0.0, None, 0.0, None), BASE, 100.0)
    assert (silent.gain, silent.eligible) == (None, False)
    assert choose([silent]) is None
    assert midpoint([silent, point(1, 9.5, 0.1)]) is None


def test_choice_takes_the_highest_gain_and_of_equal_ones_the_smaller_beta():
    grid = [point(3, 0.9, 0.2), point(2, 0.7, 0.2), point(1, 0.7, 0.2), point(2, 1.1, 0.9, eligible=False)]
    assert chosen_of(grid) == point(1, 0.7, 0.2)
    assert chosen_of([*grid, point(3, 1.3, 0.21)]) == point(3, 1.3, 0.21)
    assert choose([point(1, 0.5, 0.3, eligible=False)]) is None
    assert choose([point(1, 0.5, -0.01), point(1, 0.7, 0.0)]) is None, "the base is better"


def test_midpoint_lies_between_eligible_neighbors_of_one_layer():
    grid = [
        point(1, 0.5, 0.1),
        point(1, 0.7, 0.5),
        point(1, 0.9, 0.2),
        point(2, 0.5, 0.0),
        point(2, 0.7, 0.4),
    ]
    assert midpoint(grid) == 0.8
    assert midpoint([*grid, point(2, 0.9, 0.9)]) == 0.8, "layer 2, a higher mean between the same betas"
    # Layers never pair with each other, nor over a point that may not be chosen.
    assert midpoint([point(1, 0.5, 0.9), point(2, 0.7, 0.9)]) is None
    assert midpoint([point(1, 0.5, 0.9), point(1, 0.7, 0.9, eligible=False), point(1, 0.9, 0.9)]) is None
    assert midpoint([point(1, 1.1, 0.9), point(1, 1.3, 0.9)]) == 1.2


def test_three_layers_and_five_betas_are_eighteen_runs():
    asked = []

    def ask(layer, beta):
        asked.append((layer, beta))
        near = -abs(beta - 0.95) - 0.1 * abs(layer - 2)
        return quality(45.0 + near, 9.0 + near, 80.0, 80.0)

    found = search(lambda layer, beta: ask(layer, beta), BASE, layers=[1, 2, 3])
    assert len(asked) == len(set(asked)) == 18
    assert sorted(asked[:15]) == [(layer, beta) for layer in (1, 2, 3) for beta in BETAS]
    assert len({beta for _, beta in asked[15:]}) == 1
    assert [one.where for one in found.points] == sorted(asked)


def test_without_an_eligible_pair_there_is_no_midpoint_and_the_base_stays():
    found = search(lambda *_: quality(1.0, 1.0, 10.0, 20.0), BASE, layers=[1, 2], betas=[0.5, 0.7])
    assert len(found.points) == 4
    assert found.chosen is None


def test_a_base_without_figures_is_refused():
    with pytest.raises(InputError, match="chair_i"):
        search(lambda *_: BASE, quality(0.0, None, 0.0, None), layers=[1])


def test_numbers_of_a_list():
    assert parse_numbers("3, 1,3", int, "layers") == [1, 3]
    assert parse_numbers("0.5,.25", float, "betas") == [0.25, 0.5]
    for text in ("a", "1.5", ","):
        with pytest.raises(InputError, match="--layers"):
            parse_numbers(text, int, "layers")


percent = st.floats(1.0, 99.0).map(lambda x: round(x, 2))
qualities = st.builds(quality, percent, percent, percent, percent)
grids = st.dictionaries(
    st.tuples(st.integers(1, 3), st.sampled_from([0.5, 0.7, 0.9, 1.1, 1.3])), qualities, min_size=1
)


@given(grids, qualities, st.floats(0.0, 20.0), st.integers())
def test_choice_and_midpoint_against_a_twin_in_any_order(grid, base, bound, seed):
    points = [judged(*where, metrics, base, bound) for where, metrics in grid.items()]
    allowed = {key: q for key, q in grid.items() if q["f1"].value >= base["f1"].value - bound}
    gains = {key: twin_gain(q, base) for key, q in allowed.items()}
    chosen = chosen_of(points)
    if chosen is None:
        assert all(value <= 1e-9 for value in gains.values())
    else:
        assert chosen.metrics["f1"].value >= base["f1"].value - bound, "never below the bound"
        assert gains[chosen.where] == pytest.approx(max(gains.values()))
    between = []
    for layer, low in gains:
        above = [beta for one, beta in grid if one == layer and beta > low]
        if above and (layer, min(above)) in gains:
            high = min(above)
            between.append((gains[layer, low] + gains[layer, high], (low + high) / 2))
    middle = midpoint(points)
    if not between:
        assert middle is None
    else:
        best = max(value for value, _ in between)
        assert any(middle == pytest.approx(where) for value, where in between if value >= best - 1e-9)
    shuffled = random.Random(seed).sample(points, len(points))
    assert chosen_of(shuffled) == chosen
    assert midpoint(shuffled) == middle


@pytest.mark.parametrize(("best", "end"), [(0.5, "smallest"), (0.9, None), (1.3, "largest")])
def test_a_choice_on_the_edge_is_known(best, end):
    def ask(layer: int, beta: float):
        off = abs(beta - best)
        return quality(50.0 + off, 20.0 + off, 60.0, 70.0)

    found = search(ask, quality(60.0, 30.0, 60.0, 70.0), layers=[1], betas=[0.5, 0.7, 0.9, 1.1, 1.3])
    assert found.chosen.where[1] == best
    assert found.edge() == end


def test_an_edge_that_is_as_good_as_the_choice_is_known():
    """Of equal points the smaller beta is chosen; that the largest is as good says that the grid may end too early."""

    def ask(layer: int, beta: float):
        return quality(50.0, 20.0, 60.0, 70.0) if beta >= 0.9 else quality(60.0, 30.0, 60.0, 70.0)

    found = search(ask, quality(60.0, 30.0, 60.0, 70.0), layers=[1], betas=[0.5, 0.9, 1.3])
    assert found.chosen.where[1] == 0.9
    assert found.edge() == "largest"
