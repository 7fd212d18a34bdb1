"""Scenes of the world: what stands where, determined by (split, seed, index) alone.

The split of a scene is a property of its content: a digest of the content falls into the range of residues that
belongs to the split, so a scene of one split cannot occur in another, whatever the seeds. No pixels here.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from reweigh.errors import InputError, UnknownNameError
from reweigh.world.backgrounds import VARIANTS
from reweigh.world.drawings import CATALOGUE
from reweigh.world.kinds import KINDS, Kind

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")

SIZE = 112
"""Pixels of a side of the images that the embedded model sees."""

SPLITS: dict[str, range] = {
    "train": range(0, 10),
    "calibration": range(10, 12),
    "tuning": range(12, 14),
    "evaluation": range(14, 16),
}
"""Residues (of 16) of a scene's content digest that belong to each split."""

GRID = 16
"""Centers of objects lie on a grid of this many cells a side (half a patch of the embedded model)."""

POSES = (0.1, 0.5, 0.9)
TILTS = (-25, 0, 25)
SIZES = (("small", 0.85), ("", 1.0), ("large", 1.18))
INTRUDER = 0.16
"""Chance of one object that does not belong in this kind of scene."""

FLYING = frozenset({"airplane", "bird", "kite", "clock"})
"""Objects that may stand in the upper part of any scene; others keep to the ground or a surface."""

COUNTABLE = frozenset(
    {
        "person", "bird", "sheep", "cow", "apple", "orange", "banana", "carrot", "cup", "bottle",
        "book", "chair", "car", "boat", "donut", "fork", "bowl", "umbrella", "suitcase", "horse",
        "zebra", "elephant",
    }
)  # fmt: skip
"""Objects that may stand there twice or three times."""


@dataclass(frozen=True)
class Instance:
    """One drawn object: center and width as shares of the image's side, look, and the word for its size."""

    name: str
    colour: str  # content_digest hashes the names of fields too: renaming one would draw other scenes
    x: float
    y: float
    span: float
    size: str
    pose: float
    tilt: int
    flip: bool


@dataclass(frozen=True)
class Scene:
    """A scene's content; ``image`` draws it at any size."""

    split: str
    seed: int
    index: int
    kind: str
    instances: tuple[Instance, ...]
    variant: int
    light: float
    blur: float
    noise: float

    @property
    def id(self) -> str:
        return f"{self.split}-{self.seed}-{self.index:06d}"

    @property
    def counts(self) -> dict[str, int]:
        """Objects in the scene and how many of each, from front to back."""
        return dict(Counter(instance.name for instance in reversed(self.instances)))

    @property
    def objects(self) -> frozenset[str]:
        """The ground truth of CHAIR and of the yes/no questions."""
        return frozenset(instance.name for instance in self.instances)

    def image(self, size: int = SIZE) -> Image.Image:
        """Draw the scene; the same bytes every time."""
        from reweigh.world.render import render

        return render(self, size)

    def boxes(self, size: int = SIZE) -> list[tuple[str, tuple[int, int, int, int]]]:
        """Return each object with its box (left, top, right, bottom) in pixels, back to front, hidden parts included."""
        from reweigh.world.render import boxes

        return boxes(self, size)


def scene(split: str, index: int, seed: int = 0) -> Scene:
    """Return the scene at ``index`` of a split; every seed gives another endless series."""
    if split not in SPLITS:
        raise UnknownNameError("split", split, SPLITS)
    if index < 0 or seed < 0:
        raise InputError(f"index and seed must not be negative, got index {index}, seed {seed}")
    attempt = 0
    while True:
        rng = random.Random(f"reweigh world 1/{split}/{seed}/{index}/{attempt}")
        made = _sample(rng, split, seed, index)
        if len(made.objects) >= 3 and content_digest(made) % 16 in SPLITS[split]:
            return made
        attempt += 1


def scenes(split: str, count: int, seed: int = 0) -> Iterator[Scene]:
    """Yield the first ``count`` scenes of a split."""
    return (scene(split, index, seed) for index in range(count))


def content_digest(made: Scene) -> int:
    """Return a number that depends only on what the scene shows."""
    content = (made.kind, made.variant, made.instances)
    return int.from_bytes(hashlib.sha256(repr(content).encode()).digest()[:8], "big")


def _sample(rng: random.Random, split: str, seed: int, index: int) -> Scene:
    kind = KINDS[_pick(rng, tuple(KINDS))]
    placed = _place(rng, _choose(rng, kind))
    blur = 0.4 + 0.5 * rng.random() if rng.random() < 0.12 else 0.0
    noise = 4 + 8 * rng.random() if rng.random() < 0.25 else 0.0
    light = 0.9 + 0.15 * rng.random()
    return Scene(split, seed, index, kind.name, placed, int(rng.random() * VARIANTS), light, blur, noise)


def _choose(rng: random.Random, kind: Kind) -> list[str]:
    """Choose the names to place: three to six objects by the kind's priors, perhaps an intruder, some of them twice."""
    names = [name for name in kind.core + kind.typical + kind.rare if rng.random() < kind.chance(name)]
    if rng.random() < INTRUDER:
        names.append(_pick(rng, tuple(name for name in CATALOGUE if not kind.chance(name))))
    while len(names) < 3:
        name = _pick(rng, kind.expected)
        if name not in names:
            names.append(name)
    _shuffle(rng, names)
    names = names[: 4 + int(rng.random() * 4)]
    for name in tuple(names):
        if name in COUNTABLE and rng.random() < 0.18:
            names += [name] * (1 if rng.random() < 0.75 else 2)
    return names[:7]


def _place(rng: random.Random, names: list[str]) -> tuple[Instance, ...]:
    """Place each object where it overlaps others little; leave out one that finds no room."""
    allowed = 0.32 if rng.random() < 0.2 else 0.14
    placed: list[Instance] = []
    for name in sorted(names, key=lambda n: -CATALOGUE[n].span[1]):
        look = CATALOGUE[name]
        size, factor = _pick(rng, SIZES)
        span = round((look.span[0] + (look.span[1] - look.span[0]) * 0.5) * factor, 3)
        color, pose, flip = _pick(rng, look.colors), _pick(rng, POSES), look.flips and rng.random() < 0.5
        tilt = _pick(rng, TILTS) if look.tilts else 0
        for _ in range(60):
            x, y = _spot(rng, name, span)
            if all(_overlap(x, y, span, other) <= allowed for other in placed):
                placed.append(Instance(name, color, x, y, span, size, pose, tilt, flip))
                break
    return tuple(sorted(placed, key=lambda i: i.y + i.span / 2))


def _spot(rng: random.Random, name: str, span: float) -> tuple[float, float]:
    half = span / 2
    top = half if name in FLYING else max(half, 0.30)
    bottom = 0.62 if name in FLYING else 1 - half
    x = half + rng.random() * (1 - span)
    y = top + rng.random() * max(bottom - top, 0.0)
    return round(x * GRID) / GRID, round(y * GRID) / GRID


def _overlap(x: float, y: float, span: float, other: Instance) -> float:
    """Return the shared area as a share of the smaller square (drawings fill about nine tenths of their square)."""
    reach = 0.45 * (span + other.span)
    w, h = reach - abs(x - other.x), reach - abs(y - other.y)
    smaller = 0.9 * min(span, other.span)
    return min(w, smaller) * min(h, smaller) / smaller**2 if w > 0 and h > 0 else 0.0


def _pick(rng: random.Random, items: Sequence[T]) -> T:
    return items[int(rng.random() * len(items))]


def _shuffle(rng: random.Random, items: list[str]) -> None:
    """Shuffle in place with ``random()`` alone, whose stream Python promises to keep."""
    for i in range(len(items) - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        items[i], items[j] = items[j], items[i]
