"""Two benchmarks of one's own pictures from one file of what they show: descriptions scored as CHAIR, and questions.

Needs no COCO files and no language toolkit: the file's own words are the vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from reweigh.benchmarks.base import Benchmark, Id, Item, Record, Response
from reweigh.benchmarks.bootstrap import Array
from reweigh.benchmarks.chair.metrics import METRICS, REASONS, caption_details, count_caption
from reweigh.benchmarks.chair.metrics import figures as chair_figures
from reweigh.benchmarks.objects.truth import Picture, Truth
from reweigh.benchmarks.pope import METRICS as YES_NO
from reweigh.benchmarks.pope import PARSERS, outcome, reasons_of, yes_no_figures
from reweigh.errors import InputError
from reweigh.text import DESCRIBE

MAX_NEW_TOKENS = 512
ANSWER_TOKENS = 10
OUTCOMES = ("questions", "tp", "fp", "tn", "fn", "unparsed")


class _OwnPictures(Benchmark):
    """Pictures of the user, and the file that says what is in them."""

    def __init__(
        self, data_dir: str | Path, *, images: str | Path | None = None, truth: str | Path | None = None
    ) -> None:
        super().__init__(data_dir)
        self._truth_file = self.data_dir / "truth.jsonl" if truth is None else Path(truth)
        self.own_images = self._truth_file.parent if images is None else Path(images)

    @cached_property
    def truth(self) -> Truth:
        """The file, read and checked."""
        return Truth(self._truth_file)

    def pictures(self) -> list[Picture]:
        """The pictures of the file, whose own files must be there."""
        assert self.own_images is not None  # the constructor set it
        if missing := self.truth.missing(self.own_images):
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise InputError(
                f"the picture {missing[0]}{more} of {self._truth_file} is not in {self.own_images}",
                hint="--option images=DIR names the folder of the pictures",
            )
        return list(self.truth.pictures.values())

    def describe(self) -> dict[str, Any]:
        """Name the vocabulary and the file that the figures depend on."""
        return {"truth": self.truth.sha256, "vocabulary": self.truth.names}


class Objects(_OwnPictures):
    """Object hallucination in descriptions of one's own pictures, by CHAIR's figures.

    Args:
        data_dir: Holds ``truth.jsonl`` and the pictures, unless the options name them.
        images: Folder of the pictures; that of the truth file by default.
        truth: The file of what is in each picture.
    """

    name = "objects"
    title = "CHAIR on own pictures"
    metrics = METRICS
    reasons = REASONS
    figures = staticmethod(chair_figures)

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """List the pictures in the order of the file."""
        return [
            Record(id=one.image, image=one.image, prompt=DESCRIBE, max_new_tokens=MAX_NEW_TOKENS)
            for one in self.pictures()[:limit]
        ]

    def known_ids(self) -> Collection[Id]:
        """The pictures of the file."""
        return self.truth.pictures.keys()

    def objects(self, text: str) -> list[str]:
        """The objects of the file that a text mentions."""
        return [name for _, name, *_ in self.truth.mentions(text)]

    def score_response(self, response: Response) -> Item:
        """Compare the objects that a description mentions with those of its picture."""
        reference = self.truth.pictures[str(response.id)].objects
        found = self.truth.mentions(response.text)
        return Item(
            id=response.id,
            image=response.id,
            counts=count_caption(
                [name for _, name, *_ in found], reference, words=len(response.text.split())
            ),
            details=caption_details(found, reference),
        )


class ObjectsQuestions(_OwnPictures):
    """Is this object in the picture? Asked for every object that is there, and for as many that are not.

    The absent ones are those that the file lists for the picture; where it lists none, they are drawn by seed from the
    vocabulary's other objects.

    Args:
        data_dir: Holds ``truth.jsonl`` and the pictures, unless the options name them.
        images: Folder of the pictures; that of the truth file by default.
        truth: The file of what is in each picture.
        parser: How an answer is read, as for POPE: ``llava``, ``opera``, ``vcd`` or ``lmms-eval``.
    """

    name = "objects-questions"
    title = "Questions on own pictures"
    yes_no = True
    metrics = YES_NO
    reasons: ClassVar[Mapping[str, str]] = reasons_of([""])

    def __init__(
        self,
        data_dir: str | Path,
        *,
        images: str | Path | None = None,
        truth: str | Path | None = None,
        parser: str = "llava",
    ) -> None:
        if parser not in PARSERS:
            raise InputError(f"no parser is called {parser!r}", hint=f"use {', '.join(PARSERS)}")
        super().__init__(data_dir, images=images, truth=truth)
        self.parser = parser

    @staticmethod
    def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
        """Compute POPE's figures."""
        return yes_no_figures(*(counts[name] for name in OUTCOMES))

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """List the questions, picture by picture, the objects that are there first."""
        rows = [
            Record(
                id=_identity(one, name),
                image=one.image,
                prompt=question(name),
                max_new_tokens=ANSWER_TOKENS,
                extra={"object": name},
            )
            for one in self.pictures()
            for name in (*sorted(one.objects), *self._absent(one, seed))
        ]
        return rows[:limit]

    def known_ids(self) -> Collection[Id]:
        """Every object of the vocabulary in every picture."""
        return self._asked.keys()

    def asked_ids(self) -> Collection[Id] | None:
        """Which absent objects are asked about depends on the seed."""
        return None

    def question_of(self, identity: Id) -> str | None:
        """The question about an object."""
        return question(self._asked[identity][1]) if identity in self._asked else None

    def score_response(self, response: Response) -> Item:
        """Read one answer and compare it with what is there."""
        picture, name = self._asked[response.id]
        label = "yes" if name in picture.objects else "no"
        answer = PARSERS[self.parser](response.text, label)
        return Item(
            id=response.id,
            image=picture.image,
            counts=dict.fromkeys(outcome(label, answer), 1),
            details={"object": name, "label": label, "answer": answer, "correct": answer == label},
        )

    def describe(self) -> dict[str, Any]:
        """Name the parser, the vocabulary and the file."""
        return {"parser": self.parser, **super().describe()}

    @cached_property
    def _asked(self) -> dict[Id, tuple[Picture, str]]:
        return {
            _identity(one, name): (one, name)
            for one in self.truth.pictures.values()
            for name in self.truth.names
        }

    def _absent(self, picture: Picture, seed: int) -> list[str]:
        if picture.absent:
            return list(picture.absent)
        others = [name for name in self.truth.names if name not in picture.objects]
        drawn = random.Random(f"{seed}/{picture.image}").sample(
            others, min(len(picture.objects), len(others))
        )
        return sorted(drawn)


def question(name: str) -> str:
    """POPE's question about an object.

    >>> question("umbrella")
    'Is there an umbrella in the image?'
    """
    return f"Is there {'an' if name[0] in 'aeiou' else 'a'} {name} in the image?"


def _identity(picture: Picture, name: str) -> str:
    return f"{picture.image}/{name}"
