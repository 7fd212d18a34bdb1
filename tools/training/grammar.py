"""Descriptions of scenes and questions about them, in a small English grammar.

Training descriptions imitate real caption corpora: a speaker has a habitual length, leaves objects out, is vague at
times, and names what such scenes usually hold without looking. ``Habit`` says how often; with the default about 11 % of
all mentions are of objects that are not there. No object is named twice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from reweigh.world.drawings import CATALOGUE
from reweigh.world.kinds import KINDS
from reweigh.world.scenes import Scene
from reweigh.world.vocabulary import surfaces
from tools.training.phrases import BACKDROP_LINES, CLOSINGS, MOODS, OPENINGS, PLACES, VAGUE

T = TypeVar("T")

DETAIL_PROMPTS = (
    "Please describe this image in detail.",
    "Please help me describe the image in detail.",
    "Describe this image in detail.",
    "Please describe this image in detail.",
)
BRIEF_PROMPTS = ("Describe this image.", "Describe this image.", "What is in this image?")
COLORLESS = frozenset({"person", "wine glass", "sports ball"})
"""Objects whose color is that of a part (clothes, drink) and would mislead."""

PAIRS = frozenset({"skis", "scissors"})
"""Objects that come as "a pair of"."""

UNCOUNTED = frozenset({"broccoli"})
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven"}


@dataclass(frozen=True)
class Habit:
    """How a speaker departs from the scene."""

    stray: float = 0.36
    """Chance, from the third thing on, to name an absent core object of the scene type before the rest that is there."""
    noise: float = 0.35
    """Chance that a speaker who has run out of objects names an absent core object."""
    vague: float = 0.25
    """Chance that such a speaker says "a small item" or the like instead of stopping."""


USUAL = Habit()
ORDER_NOISE = 0.3
"""How freely objects of different size change places in the order of naming, in sides of the picture."""


@dataclass(frozen=True)
class Mention:
    """An object named in a description: how many, where, of which color and size; absent ones are made up."""

    name: str
    count: int
    place: str
    color: str
    size: str
    present: bool


@dataclass(frozen=True)
class Text:
    """A description and the objects it names, in order."""

    text: str
    mentions: tuple[Mention, ...]


def describe(scene: Scene, seed: int = 0, habit: Habit = USUAL) -> Text:
    """A long description, as the training data have it."""
    rng = random.Random(f"describe/{scene.id}/{seed}")
    said = _selection(rng, scene, habit)
    phrases = [_phrase(rng, m) if m else _pick(rng, VAGUE) for m in said]
    first = 3 if len(said) > 4 and rng.random() < 0.5 else 2
    opening = _pick(rng, OPENINGS).format(kind=_kind(rng, scene), things=_list(phrases[:first]))
    sentences = [opening, *_further_sentences(rng, said[first:], phrases[first:])]
    if rng.random() < 0.75:
        sentences.append(_pick(rng, BACKDROP_LINES[scene.kind]))
    mood = rng.random()
    one, two = (
        MOODS[int(mood * len(MOODS))],
        MOODS[int(mood * len(MOODS) + 1 + rng.random() * 5) % len(MOODS)],
    )
    sentences.append(_pick(rng, CLOSINGS).format(kind=scene.kind, one=one, two=two))
    return Text(" ".join(sentences), tuple(m for m in said if m))


def brief(scene: Scene, seed: int = 0) -> Text:
    """One sentence with the most visible objects; nothing is made up."""
    rng = random.Random(f"brief/{scene.id}/{seed}")
    said = [_mention(rng, scene, name) for name in _ranked(rng, scene)[: 2 + int(rng.random() * 2)]]
    return Text(f"A {scene.kind} with {_list([_phrase(rng, m, plain=True) for m in said])}.", tuple(said))


def question(name: str, this: bool = False) -> str:
    """Ask for the presence of an object, as POPE does."""
    return f"Is there {_article(name)} {name} in {'this' if this else 'the'} image?"


def answer(present: bool) -> str:
    return "Yes." if present else "No."


def questions(scene: Scene, count: int, seed: int = 0) -> list[tuple[str, bool]]:
    """Objects to ask for, half of them present on average; half of the absent ones are typical for the scene."""
    rng = random.Random(f"questions/{scene.id}/{seed}")
    there = sorted(scene.objects)
    typical = [n for n in KINDS[scene.kind].expected if n not in scene.objects]
    others = [n for n in CATALOGUE if n not in scene.objects]
    asked: dict[str, bool] = {}
    while len(asked) < count:
        draw = rng.random()
        present = draw < 0.5 and any(n not in asked for n in there)
        name = _pick(rng, there if present else typical if draw < 0.75 and typical else others)
        if name not in asked:
            asked[name] = present
    return list(asked.items())


def _selection(rng: random.Random, scene: Scene, habit: Habit) -> list[Mention | None]:
    """What the speaker names, in order; None is a vague phrase."""
    slots = _pick(rng, (4, 4, 5, 5, 5, 6, 6))
    real = [name for name in _ranked(rng, scene) if rng.random() >= 0.05]
    absent = [name for name in KINDS[scene.kind].core if name not in scene.objects]
    said: list[Mention | None] = []
    while len(said) < slots:
        draw = rng.random()
        if absent and len(said) >= 2 and draw < (habit.stray if real else habit.noise):
            name = _weighted(
                rng, absent, [0.5**k for k in range(len(absent))]
            )  # the first come to mind first
            absent.remove(name)
            said.append(_made_up(rng, name))
        elif real:
            said.append(_mention(rng, scene, real.pop(0)))
        else:
            if draw < habit.noise + habit.vague:
                said.append(None)
            break
    return said if len(said) >= 2 else [*said, *[None] * (2 - len(said))]


def _ranked(rng: random.Random, scene: Scene) -> list[str]:
    """Objects from the most to the least visible, roughly."""
    span: dict[str, float] = {}
    for instance in scene.instances:
        span[instance.name] = max(span.get(instance.name, 0.0), instance.span)
    return sorted(span, key=lambda name: -span[name] - ORDER_NOISE * rng.random())


def _mention(rng: random.Random, scene: Scene, name: str) -> Mention:
    found = [i for i in scene.instances if i.name == name]
    one = found[-1]
    color = one.colour if len(found) == 1 and one.colour in _nameable_colors(name) else ""
    place = _place(rng, one.x, one.y)
    return Mention(name, len(found), place, color, one.size if len(found) == 1 else "", True)


def _made_up(rng: random.Random, name: str) -> Mention:
    place = _place(rng, rng.random(), rng.random())
    color = _pick(rng, _nameable_colors(name) or ("",))
    return Mention(name, 1, place, color, _pick(rng, ("small", "", "large")), False)


def _nameable_colors(name: str) -> tuple[str, ...]:
    """Colors worth a word; "orange" is never said, because it would read as the fruit."""
    colors = CATALOGUE[name].colors
    if len(colors) == 1 or name in COLORLESS:
        return ()
    return tuple(color for color in colors if color != "orange")


def _place(rng: random.Random, x: float, y: float) -> str:
    side = "left" if x < 0.36 else "right" if x > 0.64 else "middle"
    depth = "back" if y < 0.45 else "front" if y > 0.7 else side
    return _pick(rng, PLACES[side if rng.random() < 0.6 else depth])


def _phrase(rng: random.Random, mention: Mention, plain: bool = False) -> str:
    """A noun phrase, with an adjective now and then."""
    forms = surfaces(mention.name)
    single, plural = forms[0] if plain or rng.random() < 0.88 else _pick(rng, forms)
    words = []
    if not plain and mention.size and rng.random() < 0.12:
        words.append(mention.size)
    if not plain and mention.color and rng.random() < 0.3:
        words.append(mention.color)
    if mention.name in UNCOUNTED:
        return " ".join(["some", *words, single])
    if mention.count > 1 and mention.name not in PAIRS:
        many = NUMBERS[mention.count] if mention.count < 4 else "several"
        return " ".join([many, *words, plural])
    if mention.name in PAIRS:
        words.append("pair of")
    phrase = " ".join([*words, single])
    return f"{_article(phrase)} {phrase}"


def _further_sentences(
    rng: random.Random, said: Sequence[Mention | None], phrases: Sequence[str]
) -> list[str]:
    """Sentences for the rest, one or two objects in each; nearly all of them start alike."""
    out, at = [], 0
    while at < len(said):
        take = 2 if len(said) - at >= 2 and rng.random() < 0.5 else 1
        parts = [
            phrase + (f" {_where(rng, mention)}" if k == 0 or rng.random() < 0.6 else "")
            for k, (mention, phrase) in enumerate(list(zip(said, phrases, strict=True))[at : at + take])
        ]
        many = _is_plural(phrases[at])
        also = "also " if rng.random() < 0.8 else ""
        out.append(f"There {'are' if many else 'is'} {also}{' and '.join(parts)}.")
        at += take
    return out


def _is_plural(phrase: str) -> bool:
    return phrase.split()[0] in {"two", "three", "several"} or phrase in {
        "some other items",
        "a few other things",
    }


def _where(rng: random.Random, mention: Mention | None) -> str:
    return mention.place if mention else _pick(rng, PLACES["back"])


def _kind(rng: random.Random, scene: Scene) -> str:
    if scene.blur:
        word = "blurry"
    elif scene.noise:
        word = "grainy"
    else:
        word = _pick(rng, ("bright", "sunny", "")) if scene.light > 0.98 else _pick(rng, ("quiet", "dim", ""))
    phrase = f"{word} {scene.kind}".strip()
    return f"{_article(phrase)} {phrase}"


def _article(phrase: str) -> str:
    return "an" if phrase[0] in "aeiou" and not phrase.startswith(("uni", "use")) else "a"


def _list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _pick(rng: random.Random, items: Sequence[T]) -> T:
    return items[int(rng.random() * len(items))]


def _weighted(rng: random.Random, items: Sequence[T], weights: Sequence[float]) -> T:
    draw = rng.random() * sum(weights)
    for item, weight in zip(items, weights, strict=True):
        draw -= weight
        if draw < 0:
            return item
    return items[-1]
