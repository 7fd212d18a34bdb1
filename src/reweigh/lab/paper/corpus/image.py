"""One image of a study corpus, its form in a file, and which token of an answer emitted a character."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.paper.corpus.reading import EQUALIZED_PROB, EVIDENCE, RESCALED_LOGPROB, PositionSummary
from reweigh.method.readouts import DMRR, READOUTS

ARRAYS = ("tokens", "probability", "first", "candidates", "logits")
SUMMARIES = ("original", "equalized")
COLUMNS = ("scale", "log_probability", "counts")


@dataclass(frozen=True)
class Mention:
    """An object that the answer names.

    Attributes:
        word: What the text says.
        object: The scorer's name of it.
        start: First character of its span in the text.
        end: Character after it.
        hallucinated: Whether the image does not show it.
        onset: The step that emitted the token in which the span begins.
    """

    word: str
    object: str
    start: int
    end: int
    hallucinated: bool
    onset: int


@dataclass(frozen=True, eq=False)
class StudyImage:
    """What is kept of one image; T steps, n candidate occurrences over all of them, P visual positions.

    Attributes:
        number: Its place in the image set, from 0.
        id: What the benchmark or the corpus calls it.
        key: Its name and the hash of its content.
        text: The base model's greedy answer.
        tokens: (T,) emitted ids.
        probability: (T,) probability of each, softmax of the raw logits in float64.
        first: (T + 1,) where each step's candidates begin in the next two.
        candidates: (n,) candidate ids, best first within a step.
        logits: (n,) their raw logits, float32.
        evidence: (V,) float32 under each of ``EVIDENCE``.
        original: Scale, log-probability by rank and counts of each position.
        equalized: The same after every position was given the image's median scale.
        mentions: Objects that the answer names, in order; empty for a set without a scorer.
    """

    number: int
    id: str | int
    key: str
    text: str
    tokens: NDArray[np.int64]
    probability: NDArray[np.float64]
    first: NDArray[np.int64]
    candidates: NDArray[np.int64]
    logits: NDArray[np.float32]
    evidence: Mapping[str, NDArray[np.float32]]
    original: PositionSummary
    equalized: PositionSummary
    mentions: tuple[Mention, ...] = ()

    def __len__(self) -> int:
        """Count the steps of the answer."""
        return len(self.tokens)

    def step(self, number: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Candidate ids and raw logits of one step, best first."""
        part = slice(self.first[number], self.first[number + 1])
        return self.candidates[part], self.logits[part]

    def steps(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Candidate ids and raw logits of every step."""
        return (self.step(number) for number in range(len(self)))


def pack(images: Sequence[StudyImage]) -> tuple[dict[str, NDArray[Any]], list[dict[str, Any]]]:
    """Return a shard's arrays, those of each image under its index in the shard, and a page about each."""
    arrays: dict[str, NDArray[Any]] = {}
    pages = []
    for index, image in enumerate(images):
        arrays |= {f"{index}/{name}": getattr(image, name) for name in ARRAYS}
        arrays[f"{index}/evidence"] = np.stack([image.evidence[name] for name in EVIDENCE])
        for summary in SUMMARIES:
            found = getattr(image, summary)
            arrays |= {f"{index}/{summary}/{column}": getattr(found, column) for column in COLUMNS}
        about = {name: getattr(image, name) for name in ("number", "id", "key", "text")}
        pages.append({**about, "mentions": [asdict(mention) for mention in image.mentions]})
    return arrays, pages


def unpack(arrays: Mapping[str, NDArray[Any]], pages: Sequence[Mapping[str, Any]]) -> list[StudyImage]:
    """Return the images of a shard."""
    return [_image(arrays, index, about) for index, about in enumerate(pages)]


def _image(arrays: Mapping[str, NDArray[Any]], index: int, about: Mapping[str, Any]) -> StudyImage:
    evidence = dict(zip(EVIDENCE, arrays[f"{index}/evidence"], strict=True))
    summaries = {
        name: PositionSummary(*(arrays[f"{index}/{name}/{column}"] for column in COLUMNS))
        for name in SUMMARIES
    }
    mentions = tuple(Mention(**mention) for mention in about["mentions"])
    own: dict[str, Any] = {name: arrays[f"{index}/{name}"] for name in ARRAYS}
    return StudyImage(**{**about, **own, **summaries, "mentions": mentions}, evidence=evidence)


def problem(image: StudyImage, vocab_size: int) -> str | None:
    """Say what is impossible about an image, even if its hash is right; bounds follow from the definitions."""
    steps, found = len(image.tokens), image.first
    ids = np.concatenate([image.tokens, image.candidates])
    if (
        len(image.probability) != steps
        or len(found) != steps + 1
        or len(image.logits) != len(image.candidates)
    ):
        return "its arrays have different lengths"
    if found[0] != 0 or found[-1] != len(image.candidates) or (np.diff(found) < 0).any():
        return "its candidates are not those of its steps"
    if len(ids) and not (ids.min() >= 0 and ids.max() < vocab_size):
        return f"a token is beyond the vocabulary of {vocab_size:,}"
    if not ((image.probability >= 0) & (image.probability <= 1)).all():
        return "a probability is outside [0, 1]"
    if not np.isfinite(image.logits).all():
        return "a logit is not finite"
    for name, vector in image.evidence.items():
        readout = READOUTS.get(name, READOUTS["prob" if name == EQUALIZED_PROB else DMRR])
        share = readout.is_share and name != RESCALED_LOGPROB
        if vector.shape != (vocab_size,) or not np.isfinite(vector).all():
            return f"its {name} is not finite, or not of {vocab_size:,} tokens"
        if share and not ((vector >= 0) & (vector <= 1)).all():
            return f"its {name} is outside [0, 1]"
    if any(not 0 <= one.onset < steps for one in image.mentions):
        return "a mention begins beyond its steps"
    return None


def onset(ends: Sequence[int], character: int) -> int:
    """Return the step that emitted the token with a character; the last step if the text is longer than the tokens say."""
    return min(bisect_right(ends, character), len(ends) - 1)
