"""What figures do not show: texts that fell apart, repeat themselves, stop in the middle or equal another method's.

One forward pass over a finished text gives the probability that the model, unedited, assigns to each of its tokens; a text
with a token far below chance is broken. CHAIR_I falls if true objects are repeated, so a method that mentions far more
objects than the base, leaves many texts unfinished or breaks them is named under the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from PIL.Image import Image

from reweigh.engines.transformers.arguments import followed_by
from reweigh.experiments.compare.methods import Method
from reweigh.families.processor import tokenizer_of
from reweigh.families.prompts import build_inputs
from reweigh.images import read_image
from reweigh.progress import bar
from reweigh.runs.record import find_image
from reweigh.runs.task import Scored

if TYPE_CHECKING:
    from reweigh.runs.task import Runs

IMPROBABLE = 1e-3
"""Probability below which a token breaks its text."""
LOOKED_AT = 50
"""Texts of each method that are read again."""
WORDS = 4
"""Shorter answers do not count as sentences."""


class Passage(NamedTuple):
    """Texts of several methods about one picture."""

    picture: Image
    prompt: str
    texts: Mapping[str, str]


Reader: TypeAlias = Callable[[Passage], dict[str, float]]
"""The lowest probability of a token in each of a passage's texts."""
ReadAgain: TypeAlias = Callable[[Mapping[int, Passage]], Iterable[tuple[int, dict[str, float]]]]
"""Reads numbered passages and gives what a reader found for each, in any order."""


class Passages(Mapping[int, Passage]):
    """What is read again of a benchmark, by the number of the record; a picture is opened when it is asked for.

    Answers too short to be sentences are left out.
    """

    def __init__(self, runs: Runs, texts: Mapping[str, Sequence[str]]) -> None:
        self._runs = runs
        self._due: dict[int, dict[str, str]] = {}
        for number in range(min(LOOKED_AT, len(runs.task.records))):
            found = {name: said[number].strip() for name, said in texts.items() if number < len(said)}
            long = {name: text for name, text in found.items() if len(text.split()) >= WORDS}
            if long:
                self._due[number] = long

    def __getitem__(self, number: int) -> Passage:
        record = self._runs.task.records[number]
        picture = read_image(find_image(Path(self._runs.task.images), record.image))
        return Passage(picture, record.prompt, self._due[number])

    def __iter__(self) -> Iterator[int]:
        return iter(self._due)

    def __len__(self) -> int:
        return len(self._due)

    def count(self, name: str) -> int:
        """How many texts of a method there are."""
        return sum(name in found for found in self._due.values())


def broken_shares(
    read_again: ReadAgain, runs: Runs, texts: Mapping[str, Sequence[str]], *, show: bool | None = None
) -> dict[str, float]:
    """For each method the share of its first texts that hold an improbable token; sentences only."""
    passages = Passages(runs, texts)
    count = {name: passages.count(name) for name in texts}
    broken = dict.fromkeys(texts, 0)
    with bar("reading texts again", total=sum(count.values()), unit="text", show=show) as progress:
        for _, lowest in read_again(passages):
            for name, probability in lowest.items():
                broken[name] += probability < IMPROBABLE
            progress.update(len(lowest))
    return {name: broken[name] / count[name] for name in texts if count[name]}


def reading(model: Any, processor: Any, *, template: str | None = None) -> Reader:
    """Read with a model of this process."""

    def read(passage: Passage) -> dict[str, float]:
        inputs = build_inputs(model, processor, [passage.picture], [passage.prompt], template=template)
        return {name: least_likely(model, processor, inputs, text) for name, text in passage.texts.items()}

    return read


def one_by_one(reader: Reader) -> ReadAgain:
    """Let one reader read all passages."""
    return lambda passages: ((number, reader(passages[number])) for number in passages)


def least_likely(model: Any, processor: Any, inputs: Mapping[str, Any], text: str) -> float:
    """The lowest probability of a token of a text behind a prompt; the first, which begins it, is left out."""
    tokenizer = tokenizer_of(processor)
    ids = tokenizer(f" {text}", add_special_tokens=False, return_tensors="pt")["input_ids"]
    ids = ids.to(inputs["input_ids"].device)
    if ids.shape[1] < 2:
        return 1.0
    with torch.no_grad():
        logits = model(**followed_by(inputs, ids)).logits[0, -ids.shape[1] : -1].float()
    own = logits.log_softmax(dim=-1).gather(1, ids[0, 1:, None])
    return float(own.min().exp())


WORDY = 1.25
"""Repetition is noted if there are more mentions per caption than this many times the base's."""

UNFINISHED = 0.10
"""Unfinished texts are noted if their share exceeds the base's by more than this."""

BROKEN = 0.25
"""Broken texts are noted if their share exceeds the base's by more than this."""

ENDS = (".", "!", "?", '"', ")")


def degenerate(
    methods: Sequence[Method],
    scores: Mapping[str, Mapping[str, Scored]],
    broken: Mapping[str, Mapping[str, float]],
) -> list[str]:
    """A sentence for each such row and benchmark; ``broken`` are the shares of broken texts, where they are known."""
    said = []
    for name, found in scores.items():
        served = [method for method in methods if method.name in found]
        texts = {method.name: found[method.name].texts for method in served}
        base = served[0]
        for one, other in combinations(served, 2):
            if texts[one.name] == texts[other.name]:
                said.append(
                    f"{other.title} wrote exactly the texts of {one.title} on {name}: their difference changed "
                    "no word."
                )
        for method in served[1:]:
            if (more := _more_mentions(found[method.name], found[base.name])) is not None:
                said.append(
                    f"{method.title} mentions {more:.1f} times as many objects as the base on {name}: repeating what is "
                    "true lowers CHAIR_I, so read its distinct CHAIR_I."
                )
            share = unfinished(texts[method.name])
            if share - unfinished(texts[base.name]) > UNFINISHED:
                said.append(f"{method.title} leaves {share:.0%} of its texts on {name} without an end.")
            said += _falling_apart(method, base, broken.get(name, {}), name)
    return said


def _falling_apart(method: Method, base: Method, broken: Mapping[str, float], name: str) -> list[str]:
    share = broken.get(method.name, 0.0)
    if share - broken.get(base.name, 0.0) <= BROKEN:
        return []
    return [
        f"{method.title} breaks its sentences: {share:.0%} of its texts on {name} hold a word to which the model itself "
        f"gives less than 1 in {1 / IMPROBABLE:,.0f} there, and figures of objects do not see that."
    ]


def unfinished(texts: Sequence[str]) -> float:
    """Share of texts that do not end as a sentence does; one-word answers do not count."""
    long = [text.strip() for text in texts if len(text.split()) > 3]
    return sum(not text.endswith(ENDS) for text in long) / len(long) if long else 0.0


def _more_mentions(run: Scored, base: Scored) -> float | None:
    own, its = (one.summary.metrics.get("mentions") for one in (run, base))
    if own is None or its is None or own.value is None or not its.value:
        return None
    return own.value / its.value if own.value > WORDY * its.value else None
