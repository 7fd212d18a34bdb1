"""Every drawing shows something, no two are alike, and color, pose, side and size each matter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from reweigh.world.drawings import CATALOGUE, COLORS
from reweigh.world.render import sprite


def on_white(
    name: str, side: int = 40, color: str | None = None, pose: float = 0.5, flip: bool = False
) -> np.ndarray:
    from PIL import Image

    picture = sprite(name, color or CATALOGUE[name].colors[0], pose, side, 0, flip)
    canvas = Image.new("RGB", (side, side), "white")
    canvas.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2), picture)
    return np.asarray(canvas).astype(float)


def test_there_are_sixty_or_more() -> None:
    assert len(CATALOGUE) >= 60


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_a_drawing_is_not_empty_and_stays_inside(name: str) -> None:
    picture = sprite(name, CATALOGUE[name].colors[0], 0.5, 40, 0, False)
    alpha = np.asarray(picture.getchannel("A"))
    assert (alpha > 127).mean() > 0.15
    assert max(picture.size) <= 40
    assert max(picture.size) >= 28


def test_no_two_drawings_look_alike() -> None:
    looks = {name: on_white(name) for name in CATALOGUE}
    for a, b in itertools.combinations(looks, 2):
        assert np.abs(looks[a] - looks[b]).mean() > 4, (a, b)


@pytest.mark.parametrize("name", sorted(n for n, d in CATALOGUE.items() if len(d.colors) > 1))
def test_colors_of_an_object_differ(name: str) -> None:
    for a, b in itertools.combinations(CATALOGUE[name].colors, 2):
        assert np.abs(on_white(name, color=a) - on_white(name, color=b)).mean() > 1, (a, b)


def test_colors_are_known() -> None:
    assert {c for d in CATALOGUE.values() for c in d.colors} <= set(COLORS)


@pytest.mark.parametrize("name", ["person", "dog", "clock", "scissors"])
def test_pose_changes_the_drawing(name: str) -> None:
    assert np.abs(on_white(name, pose=0.1) - on_white(name, pose=0.9)).mean() > 0.5


def test_a_flip_is_the_mirror_image() -> None:
    plain, mirrored = on_white("car"), on_white("car", flip=True)
    assert np.abs(plain - mirrored).mean() > 1
    assert np.abs(plain[:, ::-1] - mirrored).mean() < np.abs(plain - mirrored).mean() / 2
