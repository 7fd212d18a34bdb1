"""The project's own vector drawings of COCO-named objects, parametric in color and pose."""

from __future__ import annotations

from reweigh.world.drawings import animals, food, home, things, vehicles
from reweigh.world.drawings.pen import CATALOGUE, COLORS, Drawing, Shape

__all__ = ["CATALOGUE", "COLORS", "Drawing", "Shape", "animals", "food", "home", "things", "vehicles"]
