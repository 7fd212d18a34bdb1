"""Heat maps: evidence lies over the picture where it was read."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reweigh.errors import InputError
from reweigh.results.heat import WARM, heat_scale, heatmap


def overlay(values: Any, **options: Any) -> np.ndarray[Any, Any]:
    with Image.open(BytesIO(heatmap(Image.new("RGB", (64, 32), (90, 90, 90)), values, **options))) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"), dtype=int)


def test_heat_lies_where_the_evidence_is() -> None:
    grid = np.zeros((2, 4))
    grid[1, 3] = 1.0
    seen = overlay(grid)
    assert seen.shape == (32, 64, 3)
    brightest = np.unravel_index(seen.sum(axis=2).argmax(), seen.shape[:2])
    assert brightest[0] >= 16
    assert brightest[1] >= 48
    assert (seen[0, 0] == seen[0, 20]).all()


def test_flat_or_missing_evidence_shows_nothing() -> None:
    for grid in (np.ones((3, 3)), np.full((3, 3), np.nan)):
        seen = overlay(grid)
        assert (seen == seen[0, 0]).all()


def test_bounds_given_make_pictures_comparable() -> None:
    weak = overlay(np.array([[0.0, 0.1]]), low=0.0, high=1.0)
    strong = overlay(np.array([[0.0, 1.0]]), low=0.0, high=1.0)
    assert strong.max() > weak.max()


def test_a_grid_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match="shape"):
        overlay(np.ones(3))


def test_the_scale_of_a_heat_map_has_its_ends_and_its_colours() -> None:
    shown = heat_scale(0.0, 0.01234)
    assert "<span>0</span>" in shown
    assert "<span>0.0123</span>" in shown
    assert all(f"rgb{colour}" in shown for _, colour in WARM)


def test_a_heat_map_that_stands_alone_carries_its_scale() -> None:
    plain, scaled = overlay(np.eye(2), low=0.0, high=1.0), overlay(np.eye(2), low=0.0, high=1.0, scale=True)
    assert (scaled[: len(plain)] == plain).all(), "the map itself is the same"
    strip = scaled[len(plain) :]
    assert strip.shape[0] > 0
    assert (strip == 255).all(axis=2).any(), "white paper"
    assert (strip < 100).all(axis=2).any(), "and dark numbers"
