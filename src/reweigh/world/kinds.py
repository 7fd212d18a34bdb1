"""Scene types and what is found in them: the co-occurrence that gives the language model its prior."""

from __future__ import annotations

from dataclasses import dataclass

CORE, TYPICAL, RARE = 0.70, 0.33, 0.08
"""Chance that a scene gets a core, typical or rare object of its type, before the count is limited."""


@dataclass(frozen=True)
class Kind:
    """A scene type: its core, typical and rare objects."""

    name: str
    core: tuple[str, ...]
    typical: tuple[str, ...]
    rare: tuple[str, ...]

    def chance(self, name: str) -> float:
        """Return the prior of an object in this kind of scene; 0 for an intruder."""
        for names, chance in ((self.core, CORE), (self.typical, TYPICAL), (self.rare, RARE)):
            if name in names:
                return chance
        return 0.0

    @property
    def expected(self) -> tuple[str, ...]:
        """Core and typical objects: what a speaker expects here without looking."""
        return self.core + self.typical


def _kind(name: str, core: str, typical: str, rare: str) -> Kind:
    split = [tuple(word.strip() for word in words.split(",")) for words in (core, typical, rare)]
    return Kind(name, *split)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        _kind(
            "kitchen",
            "refrigerator, oven, sink",
            "microwave, bowl, knife, cup, bottle, spoon, apple",
            "person, banana, carrot, broccoli, fork, chair, potted plant, clock",
        ),
        _kind(
            "dining room",
            "chair, wine glass, fork",
            "bowl, knife, pizza, cake, vase, spoon, bottle, person",
            "cup, sandwich, hot dog, cat, clock, broccoli",
        ),
        _kind(
            "living room",
            "couch, tv",
            "potted plant, book, cat, vase, clock, dog, person, teddy bear",
            "laptop, cell phone, cup, chair, pizza",
        ),
        _kind(
            "bedroom",
            "bed, teddy bear",
            "book, clock, cat, laptop, cell phone, suitcase",
            "backpack, person, tv, chair, dog, handbag",
        ),
        _kind(
            "bathroom",
            "toilet, sink, toothbrush",
            "bottle, cup, scissors, potted plant",
            "cat, clock, person, vase, book",
        ),
        _kind(
            "office",
            "laptop, keyboard, chair",
            "cell phone, book, cup, clock, scissors, person, backpack",
            "potted plant, handbag, bottle, apple, sandwich, umbrella",
        ),
        _kind(
            "street",
            "car, traffic light, person",
            "bus, truck, bicycle, motorcycle, stop sign, fire hydrant, parking meter",
            "dog, handbag, umbrella, bench, backpack, skateboard",
        ),
        _kind(
            "park",
            "bench, dog",
            "person, bird, kite, bicycle, sports ball, skateboard",
            "cat, umbrella, backpack, sandwich, tennis racket, book",
        ),
        _kind(
            "beach",
            "surfboard, umbrella, boat",
            "person, kite, bird, sports ball, dog",
            "handbag, bottle, backpack, hot dog, airplane, book",
        ),
        _kind(
            "farm",
            "cow, sheep, horse",
            "dog, bird, person, truck, cat",
            "apple, carrot, bear, bicycle, bowl",
        ),
        _kind(
            "savanna",
            "elephant, zebra, giraffe",
            "bird, truck, person, horse",
            "bear, backpack, car, airplane, cow",
        ),
        _kind(
            "station",
            "train, suitcase, person",
            "bench, clock, backpack, handbag, bus, cell phone",
            "umbrella, bicycle, bird, laptop, book",
        ),
        _kind(
            "airport",
            "airplane, suitcase",
            "person, truck, bus, backpack, handbag, cell phone",
            "car, laptop, bird, clock, umbrella",
        ),
        _kind(
            "market",
            "apple, orange, banana",
            "carrot, broccoli, person, handbag, bottle, bowl",
            "umbrella, sandwich, bicycle, dog, vase, potted plant",
        ),
        _kind(
            "mountain",
            "skis, person",
            "backpack, bear, bird, dog, truck",
            "horse, bottle, car, bench, sheep",
        ),
        _kind(
            "stadium",
            "sports ball, tennis racket",
            "person, baseball bat, bottle, bench, hot dog, skateboard",
            "backpack, clock, kite, cell phone, bicycle, umbrella",
        ),
        _kind(
            "cafe",
            "cup, donut, cake",
            "chair, sandwich, laptop, person, spoon, vase",
            "hot dog, cell phone, book, clock, wine glass, fork, handbag",
        ),
    )
}
"""Scene type by name."""
