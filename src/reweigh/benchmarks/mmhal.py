"""MMHal-Bench: 96 questions, a judge's rating from 0 to 6 for each answer.

Two readings of a judge's reply, both named: ``official`` looks for "rating: s" anywhere in the text, digits
being read one by one; ``strict`` (the paper's wording) wants one whole number from 0 to 6 after "rating: ". A
reply with no or several ratings scores 0 under both and is counted as unparsed. The prompt comes from the
benchmark's files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.artifacts import read_json
from reweigh.benchmarks.base import Id, Item, Metric, MetricInfo, Record, Response
from reweigh.benchmarks.bootstrap import Array, intervals, ratio, sum_counts
from reweigh.benchmarks.data.dataset import Dataset, File
from reweigh.benchmarks.judge.prompts import find_prompt, read_prompt
from reweigh.benchmarks.judge.protocol import Judge, user
from reweigh.benchmarks.judged import Judged, Rules
from reweigh.errors import InputError

RECORDS = 96
MAX_NEW_TOKENS = 256
QUESTIONS = "response_template.json"
PROMPTS = ("mmhal_prompt.txt", "eval_gpt4.py", "eval_gpt_mmhal.py")
PROMPT_NAMES = ("template",)
TYPES = ("attribute", "adversarial", "comparison", "counting", "relation", "environment", "holistic", "other")
HALLUCINATED_BELOW = 3

METRICS = (
    MetricInfo("score", "higher", unit="", digits=2, headline=True),
    MetricInfo("hallucination_rate", "lower", headline=True),
    MetricInfo("unparsed", "lower", headline=True),
)
"""The metrics of all questions; each type has a score of its own, ``score_attribute`` and so on."""

_SOURCE = "https://huggingface.co/datasets/Shengcao1006/MMHal-Bench/resolve/f5f49a938f45ed99e235b8519ba28f76832a2add"
DATASET = Dataset(
    name="mmhal",
    title="MMHal-Bench: questions, images and the judge's prompt",
    licence="Apache-2.0",
    page="https://huggingface.co/datasets/Shengcao1006/MMHal-Bench",
    files=(
        File(name="response_template.json", url=f"{_SOURCE}/response_template.json"),
        File(name="eval_gpt4.py", url=f"{_SOURCE}/eval_gpt4.py"),
        File(name="test_data.zip", url=f"{_SOURCE}/test_data.zip", unpack=True, holds=("images",)),
    ),
)


def parse_official(reply: str) -> int | None:
    """The official program's reading: the one digit s for which "rating: s" occurs, or None.

    It looks for the characters only, so that 10 reads as 1, 4.5 as 4 and "underrating: 3" as 3.
    """
    text = reply.lower()
    found = [score for score in range(7) if f"rating: {score}" in text]
    return found[0] if len(found) == 1 else None


_RATING = re.compile(r"(\w?rating: [0-9]+(?:\.[0-9]+)?)")
_VALID = {f"rating: {score}": score for score in range(7)}


def parse_strict(reply: str) -> int | None:
    """The strict reading: all "rating: n" entries name one and the same whole number from 0 to 6."""
    found = set(_RATING.findall(reply.lower()))
    return _VALID.get(found.pop()) if len(found) == 1 else None


PARSERS: Mapping[Rules, Callable[[str], int | None]] = {"official": parse_official, "strict": parse_strict}


@dataclass(frozen=True, slots=True)
class Question:
    """One record of the benchmark's question file."""

    index: int
    image: str
    contents: tuple[str, ...]
    question: str
    answer: str

    @property
    def type(self) -> str:
        """The question type, which the benchmark encodes in the order."""
        return TYPES[self.index % len(TYPES)]


FIGURES = ("score", "hallucination_rate", "unparsed", *(f"score_{name}" for name in TYPES))


def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Mean score, hallucination rate and unparsed share in percent, mean score of each type."""
    values = {
        "score": ratio(counts["score"], counts["n"], scale=1.0),
        "hallucination_rate": ratio(counts["hallucinated"], counts["n"]),
        "unparsed": ratio(counts["unparsed"], counts["n"]),
    }
    for name in TYPES:
        values[f"score_{name}"] = ratio(counts[f"score:{name}"], counts[f"n:{name}"], scale=1.0)
    return values


class MMHal(Judged[Question, str]):
    """MMHal-Bench over a folder with ``response_template.json``, ``images/`` and the official program.

    The rules give the metrics; the official figures are given besides. A prompt in a .py is its ``template``.
    """

    name = "mmhal"
    title = "MMHal-Bench"
    dataset = DATASET
    metrics = METRICS
    figures = staticmethod(figures)

    @classmethod
    def read_responses(
        cls, path: Path, *, id_key: str | None = None, text_key: str | None = None
    ) -> list[Response]:
        """Read the official form, the question file with ``model_answer`` filled in, or any other file.

        Answers in the official form carry no id; their order tells which question they answer, and each row's own
        question and picture are compared with it.
        """
        rows = read_json(path) if path.suffix == ".json" else None
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) and "model_answer" in row for row in rows
        ):
            return super().read_responses(path, id_key=id_key, text_key=text_key)
        if len(rows) != RECORDS:
            raise InputError(
                f"{path} holds {len(rows)} answers; the official form has exactly {RECORDS}, in order"
            )
        return [
            Response(index, row["model_answer"], _strings(row, "question"), *_strings(row, "image_src")[:1])
            for index, row in enumerate(rows)
        ]

    def image_of(self, identity: Id) -> str | None:
        """The picture of a question: the same question may be asked of several."""
        found = self.questions.get(identity)
        return None if found is None else found.image

    def _record(self, question: Question) -> Record:
        return Record(
            id=question.index,
            image=question.image,
            prompt=question.question,
            max_new_tokens=MAX_NEW_TOKENS,
            extra={"type": question.type},
        )

    def _asking(self, judge: Judge) -> tuple[str, Callable[[Question, str, int], str]]:
        path = find_prompt(self.data_dir, PROMPTS, self.prompt, self.name)
        template = read_prompt(path, PROMPT_NAMES)
        if template.count("{}") != 4:
            raise InputError(
                f"the prompt in {path} has {template.count('{}')} places marked {{}}; expected four: "
                "image contents, question, human answer, model answer"
            )
        return template, lambda question, answer, _run: judge.ask(user(fill(template, question, answer)))

    def _item(self, question: Question, answer: str, verdicts: Sequence[str]) -> Item:
        return rate(question, answer, verdicts[0], rules=self.rules)

    def _metrics(self, items: Sequence[Item]) -> dict[str, Metric]:
        return intervals(items, figures, reasons=dict.fromkeys(FIGURES, "no question of this kind was rated"))

    def _tallies(self, counts: Mapping[str, float]) -> dict[str, Any]:
        return {"unparsed_official": int(counts.get("official_unparsed", 0))}

    def _official(self, items: Sequence[Item]) -> dict[str, float | None]:
        return official_figures(items)

    def _read_questions(self, folder: Path) -> Mapping[Id, Question]:
        path = folder / QUESTIONS
        if not path.is_file():
            raise InputError(f"there is no {path}", hint="reweigh data get mmhal")
        rows = read_json(path)
        if not isinstance(rows, list) or len(rows) != RECORDS:
            size = len(rows) if isinstance(rows, list) else type(rows).__name__
            raise InputError(
                f"{path} holds {size} records; MMHal-Bench has exactly {RECORDS}, in its own order"
            )
        return {index: _question(index, row, path) for index, row in enumerate(rows)}


def _question(index: int, row: Any, path: Path) -> Question:
    try:
        contents = tuple(str(word) for word in row["image_content"])
        image = "images/" + str(row.get("image_path") or row["image_src"]).rsplit("/", 1)[-1]
        return Question(index, image, contents, str(row["question"]), str(row["gt_answer"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}, record {index}, is not as expected ({error!r})",
            hint="each record has image_src (or image_path), image_content, question and gt_answer",
        ) from error


def _strings(row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key)
    return (value,) if isinstance(value, str) else ()


def fill(template: str, question: Question, answer: str) -> str:
    """Put contents, question, human answer and model answer into the four places, in this order."""
    parts = template.split("{}")
    values = (", ".join(question.contents), question.question, question.answer, answer)
    return parts[0] + "".join(value + part for value, part in zip(values, parts[1:], strict=True))


def rate(question: Question, answer: str, reply: str, *, rules: Rules) -> Item:
    """Turn a judge's reply into an item that carries both readings."""
    chosen, official = PARSERS[rules](reply), parse_official(reply)
    counts: dict[str, float] = {"n": 1, "unparsed": chosen is None, "official_unparsed": official is None}
    counts["score"] = chosen or 0
    counts["hallucinated"] = (chosen or 0) < HALLUCINATED_BELOW
    counts["official_score"] = official or 0
    counts["official_hallucinated"] = (official or 0) < HALLUCINATED_BELOW
    for name in TYPES:
        own = name == question.type
        counts[f"n:{name}"] = own
        counts[f"score:{name}"] = (chosen or 0) if own else 0
        counts[f"official_score:{name}"] = (official or 0) if own else 0
    return Item(
        id=question.index,
        image=question.image,
        counts={name: float(value) for name, value in counts.items()},
        details={
            "type": question.type,
            "question": question.question,
            "reference": question.answer,
            "response": answer,
            "reply": reply,
            "score": chosen or 0,
            "parsed": chosen is not None,
        },
    )


def official_figures(items: Sequence[Item]) -> dict[str, float | None]:
    """What the official program prints for all 96: two decimals, the rate as a fraction."""
    counts = sum_counts(items)
    printed: dict[str, float | None] = {
        "average_score": float(f"{counts['official_score'] / counts['n']:.2f}"),
        "hallucination_rate": float(f"{counts['official_hallucinated'] / counts['n']:.2f}"),
    }
    for name in TYPES:
        of_type = counts[f"n:{name}"]
        printed[f"score_{name}"] = round(counts[f"official_score:{name}"] / of_type, 2) if of_type else None
    return printed
