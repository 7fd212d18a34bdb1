"""Another model as verifier behind ``POST /v1/systemone``: it sees the picture and gives the probability of yes.

Nothing is generated and nothing is parsed. `transformers serve MODEL` of a model that sees pictures is such a server.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from reweigh.benchmarks.judge.systemone import SystemOne
from reweigh.experiments.tune.labelfree.verifier import question

if TYPE_CHECKING:
    from PIL.Image import Image

STATE = "Look at the picture."
ROWS = 16
"""Questions in one request; each is a row with the whole picture in the server's batch."""

LONGEST_SIDE = 2048
"""Pixels beyond which a picture is scaled down before it is sent."""

SURE = 1e-9
"""The least distance of a probability from 0 and 1 that is told from none, since logits are finite."""


class ServedVerifier:
    """A model behind an address: g = log(p / (1 - p)), where p is its probability of yes."""

    def __init__(self, server: SystemOne) -> None:
        self.server = server

    def ask(self, picture: Image, names: Sequence[str]) -> list[float]:
        """One request for each batch of questions about the picture."""
        shown = [data_url(picture)]
        gaps: list[float] = []
        for start in range(0, len(names), ROWS):
            asked = [question(name) for name in names[start : start + ROWS]]
            gaps += [log_odds(p) for p in self.server.affirm(STATE, asked, shown)]
        return gaps

    def probe(self) -> None:
        """Ask about a grey picture: an address, model or vocabulary that cannot answer is found before anything long."""
        from PIL import Image

        self.ask(Image.new("RGB", (224, 224), "grey"), ["person"])

    def __enter__(self) -> ServedVerifier:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()

    def describe(self) -> dict[str, Any]:
        """The server's model and address, and what it is told and shown."""
        return {**self.server.describe(), "state": STATE, "longest_side": LONGEST_SIDE}


def log_odds(p: float) -> float:
    """log(p / (1 - p)), bounded; above 0 exactly where yes is the likelier answer.

    Example:
        >>> log_odds(0.5), round(log_odds(0.9), 3), round(log_odds(1.0), 3)
        (0.0, 2.197, 20.723)
    """
    bounded = min(max(p, SURE), 1 - SURE)
    return math.log(bounded) - math.log1p(-bounded)


def data_url(picture: Image) -> str:
    """The picture as a PNG in a data URL, without loss up to the longest side."""
    if max(picture.size) > LONGEST_SIDE:
        picture = picture.copy()
        picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    kept = BytesIO()
    picture.save(kept, "PNG")
    return "data:image/png;base64," + base64.b64encode(kept.getvalue()).decode()
