"""The scatter plot: every name is there, none covers another, and ratios grow by factors."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.results.scatter import LETTER, TALL, Box, Point, scatter_plot

SVG = "{http://www.w3.org/2000/svg}"


def boxes(drawing: str, names: set[str]) -> list[Box]:
    """Where the names stand."""
    found = []
    for node in ElementTree.fromstring(drawing).iter(f"{SVG}text"):
        if node.text in names:
            x, y = float(node.get("x") or 0), float(node.get("y") or 0)
            found.append(Box(x, y + 3 - TALL, x + LETTER * len(node.text), y + 3))
    return found


@pytest.mark.parametrize("width", [356, 720])
def test_names_of_neighbours_do_not_cover_each_other(width: int) -> None:
    points = [Point(f"method-{i}", 1.0 + 0.02 * i, 20.0 + 0.1 * i) for i in range(12)]
    placed = boxes(
        scatter_plot(points, across="cost", up="quality", width=width), {one.name for one in points}
    )
    assert len(placed) == 12
    assert not any(one.meets(other) for one, other in combinations(placed, 2))
    assert all(box.left >= 0 and box.right <= width for box in placed)


def test_the_chief_one_is_bold_and_stands_beside_its_point() -> None:
    points = [Point("a", 1, 1), Point("b", 1, 1, chief=True)]
    drawn = ElementTree.fromstring(scatter_plot(points, across="x", up="y"))
    bold = [node.text for node in drawn.iter(f"{SVG}text") if node.get("font-weight") == "700"]
    assert bold == ["b"]
    assert len(list(drawn.iter(f"{SVG}circle"))) == 2
    assert "a 1 at 1; b 1 at 1" in (drawn.get("aria-label") or "")


def test_ratios_far_apart_are_drawn_by_factors() -> None:
    def places(values: list[float]) -> list[float]:
        points = [Point(f"p{i}", value, 1.0 + i) for i, value in enumerate(values)]
        drawn = ElementTree.fromstring(scatter_plot(points, across="x", up="y"))
        return sorted(float(node.get("cx") or 0) for node in drawn.iter(f"{SVG}circle"))

    one, ten, hundred = places([1.0, 10.0, 100.0])
    assert ten - one == pytest.approx(hundred - ten, abs=0.3)
    one, two, three = places([1.0, 2.0, 3.0])
    assert two - one == pytest.approx(three - two, abs=0.3)


def test_a_plot_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="one point"):
        scatter_plot([], across="x", up="y")


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.text(max_size=20), st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=1, max_size=9
    )
)
def test_any_points_give_a_well_formed_drawing(rows: list[tuple[str, float, float]]) -> None:
    points = [Point("".join(c for c in name if c.isprintable()), x, y) for name, x, y in rows]
    drawn = ElementTree.fromstring(scatter_plot(points, across="x", up="y", width=356))
    for node in drawn.iter(f"{SVG}circle"):
        assert 0 <= float(node.get("cx") or -1) <= 356
