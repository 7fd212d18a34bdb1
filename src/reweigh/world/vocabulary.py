"""Names of the world's objects as they occur in text, and where a text mentions them. No language toolkit needed."""

from __future__ import annotations

import re
from functools import cache

from reweigh.errors import UnknownNameError
from reweigh.world.drawings import CATALOGUE

_PLURALS = {
    "person": "people",
    "bus": "buses",
    "bench": "benches",
    "couch": "couches",
    "sandwich": "sandwiches",
    "toothbrush": "toothbrushes",
    "wine glass": "wine glasses",
    "knife": "knives",
    "sheep": "sheep",
    "skis": "skis",
    "scissors": "scissors",
    "broccoli": "broccoli",
}
_SYNONYMS: dict[str, tuple[tuple[str, str], ...]] = {
    "person": (("man", "men"), ("woman", "women")),
    "bicycle": (("bike", "bikes"),),
    "airplane": (("plane", "planes"),),
    "motorcycle": (("motorbike", "motorbikes"),),
    "couch": (("sofa", "sofas"),),
    "tv": (("television", "televisions"),),
    "refrigerator": (("fridge", "fridges"),),
    "cell phone": (("phone", "phones"),),
    "cup": (("mug", "mugs"),),
    "donut": (("doughnut", "doughnuts"),),
    "handbag": (("purse", "purses"),),
    "sports ball": (("ball", "balls"),),
}


def surfaces(name: str) -> tuple[tuple[str, str], ...]:
    """Return singular and plural of an object's name, then of its synonyms."""
    if name not in CATALOGUE:
        raise UnknownNameError("object", name, CATALOGUE)
    return ((name, _PLURALS.get(name, name + "s")), *_SYNONYMS.get(name, ()))


@cache
def object_names() -> dict[str, str]:
    """Return every name that objects have in text, with the object that it means."""
    return {form: name for name in CATALOGUE for pair in surfaces(name) for form in pair}


@cache
def _pattern() -> re.Pattern[str]:
    forms = sorted(object_names(), key=len, reverse=True)
    return re.compile(r"\b(?:" + "|".join(map(re.escape, forms)) + r")\b", re.IGNORECASE)


def mentions(text: str) -> list[tuple[int, int, str, str]]:
    """Find each mention of an object: start, end, the words used, the object meant. The longest name wins."""
    found = _pattern().finditer(text)
    return [(m.start(), m.end(), m.group(), object_names()[m.group().lower()]) for m in found]
