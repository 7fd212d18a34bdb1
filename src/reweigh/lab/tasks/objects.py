"""Two benchmarks on your own pictures: descriptions scored like CHAIR, and yes/no questions.

A file says what the pictures show, one JSON line each:
``{"image": "a.jpg", "objects": ["dog"], "absent": ["cat"], "synonyms": {"dog": ["puppy"]}}``; only the first two fields
are required. The vocabulary is every object that any line names, and what a file of further objects lists; a synonym given
once holds for the whole file. ``"split": "tuning"`` keeps a picture for tuning. Needs no COCO files and no language toolkit.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from reweigh.errors import InputError
from reweigh.files.artifacts import sha256_file
from reweigh.images import list_images, unread_pictures
from reweigh.lab.bootstrap import Array
from reweigh.lab.tasks.base import Benchmark, Id, Item, Question, Record, Response
from reweigh.lab.tasks.chair.mentions import Vocabulary
from reweigh.lab.tasks.chair.metrics import METRICS, caption_item
from reweigh.lab.tasks.chair.metrics import figures as chair_figures
from reweigh.lab.tasks.nouns import outside
from reweigh.lab.tasks.pope import METRICS as YES_NO
from reweigh.lab.tasks.pope import OUTCOMES, PARSERS, outcome, yes_no_figures
from reweigh.lab.tasks.responses import read_rows
from reweigh.text import DESCRIBE, shortened

MAX_NEW_TOKENS = 512
ANSWER_TOKENS = 10
FIELDS = ("image", "objects", "absent", "synonyms", "split")
EVALUATION, TUNING = "evaluation", "tuning"
HINT = 'one line for each picture: {"image": "a.jpg", "objects": ["dog", "person"]}'


@dataclass(frozen=True)
class Picture:
    """One line: what a picture shows, what it certainly does not, and what it is used for."""

    image: str
    objects: frozenset[str]
    absent: tuple[str, ...]
    split: str | None = None


class Truth:
    """A file of pictures with their objects.

    Args:
        path: The file.
        vocabulary: A file of further objects, one in a line, followed by other words for it: ``train, locomotive``.
    """

    def __init__(self, path: Path, vocabulary: str | Path | None = None) -> None:
        rows = read_rows(path, hint=f"--option truth=FILE; {HINT}")
        self.pictures: dict[str, Picture] = {}
        self._forms: dict[str, str] = {}
        synonyms: list[tuple[str, str, str]] = []
        for where, row in rows:
            picture = _picture(where, row)
            if picture.image in self.pictures:
                raise InputError(f"{where}, names the picture {picture.image} a second time")
            self.pictures[picture.image] = picture
            for name, forms in row.get("synonyms", {}).items():
                (known,) = _words(where, "synonyms", [name])
                synonyms += [(where, form, known) for form in _words(where, "synonyms", forms)]
        if vocabulary is not None:
            for form, name in Vocabulary.read(vocabulary).category_of.items():
                words = [" ".join(one.lower().split()) for one in (form, name)]
                synonyms.append((str(vocabulary), words[0], words[1]))
        if not self.pictures:
            raise InputError(f"{path} holds no picture", hint=HINT)
        self.sha256 = sha256_file(path)
        named = {name for one in self.pictures.values() for name in (*one.objects, *one.absent)}
        self.names = sorted(named | {name for _, _, name in synonyms})
        if not self.names:
            raise InputError(f"{path} names no object, so there is nothing to look for", hint=HINT)
        for where, form, name in [*((str(path), name, name) for name in self.names), *synonyms]:
            if (other := self._forms.setdefault(form, name)) != name:
                raise InputError(
                    f"{where}, has {form!r} as a word for {name!r}, but it is also a word for {other!r}"
                )
        for form, name in list(self._forms.items()):
            self._forms.setdefault(plural(form), name)  # a word given in the file takes precedence
        longest = sorted(self._forms, key=len, reverse=True)
        self._pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest)) + r")(?!\w)")

    def knows(self, phrase: str) -> bool:
        """Whether a phrase has a word for an object, so that it is looked for."""
        return self._pattern.search(phrase.lower()) is not None

    def of_split(self, split: str) -> list[Picture]:
        """Return the pictures of a split; those of the whole file if no line has one."""
        pictures = list(self.pictures.values())
        if all(one.split is None for one in pictures):
            return pictures
        return [one for one in pictures if (one.split or EVALUATION) == split]

    def mentions(self, text: str) -> list[tuple[str, str, int, int]]:
        """Return word, object, start and end of each mention; the longest form wins."""
        lowered = text.lower()
        if len(lowered) != len(text):  # a few letters change their length; leave them as they are
            lowered = "".join(one.lower() if len(one.lower()) == 1 else one for one in text)
        return [
            (text[found.start() : found.end()], self._forms[found.group()], found.start(), found.end())
            for found in self._pattern.finditer(lowered)
        ]


def plural(form: str) -> str:
    """Return the regular English plural; irregular ones are given as synonyms.

    >>> [plural(form) for form in ("dog", "bus", "bench", "berry", "toy")]
    ['dogs', 'buses', 'benches', 'berries', 'toys']
    """
    if re.search(r"(?:[sxz]|ch|sh)$", form):
        return f"{form}es"
    return f"{form[:-1]}ies" if re.search(r"[^aeiou]y$", form) else f"{form}s"


def _picture(where: str, row: Any) -> Picture:
    if not isinstance(row, Mapping):
        raise InputError(f"{where}, is not a JSON object", hint=HINT)
    if unknown := [name for name in row if name not in FIELDS]:
        raise InputError(f"{where}, has the unknown field {unknown[0]!r}", hint=f"known: {', '.join(FIELDS)}")
    if not isinstance(image := row.get("image"), str) or not image.strip():
        raise InputError(f"{where}, has no image name", hint=HINT)
    if "objects" not in row:
        raise InputError(
            f"{where}, lacks objects", hint="use an empty list if the picture shows none of the objects"
        )
    if not isinstance(row.get("synonyms", {}), Mapping):
        raise InputError(f"{where}, has synonyms that are not an object", hint='{"dog": ["puppy"]}')
    objects, absent = (_words(where, name, row.get(name, [])) for name in ("objects", "absent"))
    if both := sorted(set(objects) & set(absent)):
        raise InputError(f"{where}, has {both[0]!r} as both present and absent")
    if (split := row.get("split")) not in (None, EVALUATION, TUNING):
        raise InputError(f"{where}, has the unknown split {split!r}", hint=f"{EVALUATION} or {TUNING}")
    return Picture(image, frozenset(objects), absent, split)


def _words(where: str, field: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(one, str) and one.strip() for one in given):
        raise InputError(f"{where}, has {field} that are not a list of words", hint='["dog", "wine glass"]')
    return tuple(dict.fromkeys(" ".join(one.lower().split()) for one in given))


@dataclass(eq=False, repr=False)
class _OwnPictures(Benchmark):
    """The user's pictures, and the file that says what they show."""

    _: KW_ONLY
    tuning_options: ClassVar[Mapping[str, Any]] = {"split": TUNING}

    images: str | Path | None = None
    truth: str | Path | None = None
    split: str = EVALUATION
    vocabulary: str | Path | None = None

    @property
    def _truth_file(self) -> Path:
        return self.data_dir / "truth.jsonl" if self.truth is None else Path(self.truth)

    @property
    def own_images(self) -> Path:
        return self._truth_file.parent if self.images is None else Path(self.images)

    @cached_property
    def _known(self) -> Truth:
        return Truth(self._truth_file, self.vocabulary)

    def pictures(self) -> list[Picture]:
        """Return the pictures of the split; refuse missing ones."""
        if self.split not in (EVALUATION, TUNING):
            raise InputError(f"unknown split {self.split!r}", hint=f"{EVALUATION} or {TUNING}")
        if not (pictures := self._known.of_split(self.split)):
            raise InputError(
                f"no line of {self._truth_file} has the split {self.split}", hint=f'"split": "{self.split}"'
            )
        if missing := [one.image for one in pictures if not (self.own_images / one.image).is_file()]:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise InputError(
                f"the picture {missing[0]}{more} of {self._truth_file} is not in {self.own_images}",
                hint="name the folder of the pictures with --option images=DIR",
            )
        return pictures

    def describe(self, items: Sequence[Item]) -> dict[str, Any]:
        return {"truth": self._known.sha256, "vocabulary": self._known.names}

    def remarks(self, texts: Sequence[str]) -> list[str]:
        """Say how large the vocabulary is, what texts name besides, and which pictures of the folder are not used."""
        said = [f"The vocabulary has {len(self._known.names)} objects."]
        if others := outside(texts, self._known.knows):
            listed = ", ".join(f"{word} ({count})" for word, count in others)
            said = [
                f"{said[0]} The most frequent other nouns, which are not counted: {listed}. --option vocabulary=FILE "
                "adds objects."
            ]
        folder = self.own_images
        try:
            there = [path.relative_to(folder).as_posix() for path in list_images(folder)]
        except InputError:  # scoring needs no pictures
            return said
        if unnamed := [name for name in there if name not in self._known.pictures]:
            said.append(
                f"{len(unnamed)} of {len(there)} pictures in {folder} have no line in {self._truth_file.name} and are not "
                f"used: {shortened(unnamed)}."
            )
        unread = unread_pictures(folder)
        return [*said, unread] if unread else said


class Objects(_OwnPictures):
    """Object hallucination in descriptions of your own pictures, by CHAIR's figures.

    Args:
        data_dir: Holds ``truth.jsonl`` and the pictures, unless the options name them.
        images: Folder of the pictures; by default that of the truth file.
        truth: The file that says what is in each picture.
        split: Which of its lines: evaluation, or tuning. A file in which no line has a split is used whole.
        vocabulary: A file of further objects to look for, one in a line, followed by other words for it.
    """

    name = "objects"
    title = "CHAIR on own pictures"
    metrics = METRICS
    figures = staticmethod(chair_figures)

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        return [
            Record(id=one.image, image=one.image, prompt=DESCRIBE, max_new_tokens=MAX_NEW_TOKENS)
            for one in self.pictures()[:limit]
        ]

    def known_ids(self) -> Collection[Id]:
        return self._known.pictures.keys()

    def objects(self, text: str) -> list[str]:
        return [name for _, name, *_ in self._known.mentions(text)]

    def score_response(self, response: Response) -> Item:
        reference = self._known.pictures[str(response.id)].objects
        return caption_item(response.id, response.text, self._known.mentions(response.text), reference)


@dataclass(eq=False, repr=False)
class ObjectsQuestions(_OwnPictures):
    """Is this object in the picture? Asked for every object that is there, and for as many that are not.

    The absent ones are those that the file lists for the picture; if it lists none, they are drawn by seed from the
    rest of the vocabulary.

    Args:
        data_dir: Holds ``truth.jsonl`` and the pictures, unless the options name them.
        images: Folder of the pictures; by default that of the truth file.
        truth: The file that says what is in each picture.
        split: Which of its lines: evaluation, or tuning. A file in which no line has a split is used whole.
        vocabulary: A file of further objects to ask about, one in a line, followed by other words for it.
        parser: How an answer is read, as for POPE: ``llava``, ``opera``, ``vcd`` or ``lmms-eval``.
    """

    name = "objects-questions"
    title = "Questions on own pictures"
    yes_no = True
    metrics = YES_NO

    _: KW_ONLY
    parser: str = "llava"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parser not in PARSERS:
            raise InputError(f"unknown parser {self.parser!r}", hint=f"use {', '.join(PARSERS)}")

    @staticmethod
    def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
        return yes_no_figures(*(counts[name] for name in OUTCOMES))

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """List the questions, picture by picture; present objects come first."""
        rows = [
            Record(
                id=f"{one.image}/{name}",
                image=one.image,
                prompt=question(name),
                max_new_tokens=ANSWER_TOKENS,
            )
            for one in self.pictures()
            for name in (*sorted(one.objects), *self._absent(one, seed))
        ]
        return rows[:limit]

    def _absent(self, picture: Picture, seed: int) -> list[str]:
        if picture.absent:
            return list(picture.absent)
        others = [name for name in self._known.names if name not in picture.objects]
        draw = random.Random(f"{seed}/{picture.image}")
        return sorted(draw.sample(others, min(len(picture.objects), len(others))))

    @cached_property
    def _questions(self) -> dict[Id, tuple[Picture, str]]:
        return {
            f"{one.image}/{name}": (one, name)
            for one in self._known.pictures.values()
            for name in self._known.names
        }

    def known_ids(self) -> Collection[Id]:
        return self._questions.keys()

    def asked_ids(self) -> Collection[Id] | None:
        """Return None: which absent objects are asked about depends on the seed."""
        return None

    def asked(self, identity: Id) -> Question | None:
        if identity not in self._questions:
            return None
        picture, name = self._questions[identity]
        return Question(picture.image, question(name))

    def score_response(self, response: Response) -> Item:
        picture, name = self._questions[response.id]
        label = "yes" if name in picture.objects else "no"
        answer = PARSERS[self.parser](response.text, label)
        return Item(
            id=response.id,
            image=picture.image,
            counts=dict.fromkeys(outcome(label, answer), 1),
            details={"object": name, "label": label, "answer": answer, "correct": answer == label},
        )

    def describe(self, items: Sequence[Item]) -> dict[str, Any]:
        return {"parser": self.parser, **super().describe(items)}


def question(name: str) -> str:
    """Ask about an object as POPE does.

    >>> question("umbrella")
    'Is there an umbrella in the image?'
    """
    return f"Is there {'an' if name[0].lower() in 'aeiou' else 'a'} {name} in the image?"
