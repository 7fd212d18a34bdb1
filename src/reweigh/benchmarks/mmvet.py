"""MM-Vet: 218 questions, a judge's grade from 0 to 1 for each answer.

Two sets of rules, both named. ``strict`` is the paper's: one question at temperature 0, and the whole reply
must be one of 0.0, 0.1, ..., 1.0 (so 0.85 is unparsed and scores 0). ``official`` is the official program's:
what stands before the first blank goes through Python's float and must lie in [0, 1]; otherwise it asks again
with a suffix, hotter each time, and gives up after five readings. The prompt comes from the benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.artifacts import read_json
from reweigh.benchmarks.base import Id, Item, Metric, MetricInfo, Record
from reweigh.benchmarks.bootstrap import Array, intervals, ratio
from reweigh.benchmarks.data.dataset import Dataset, File
from reweigh.benchmarks.judge.prompts import find_prompt, read_prompt, strings_of
from reweigh.benchmarks.judge.protocol import Judge, user
from reweigh.benchmarks.judged import Judged
from reweigh.errors import InputError

MAX_NEW_TOKENS = 1024
JUDGE_TOKENS = 3
RETRY_TEMPERATURES = (0.0, 0.5, 1.0, 1.5)
"""Of the repeated questions; the official program fetches one more at 2.0 and does not read it."""
QUESTIONS = "mm-vet.json"
PROMPTS = ("mmvet_prompt.txt", "mm-vet_evaluator.py")
PROMPT_NAMES = ("prompt",)
OWN_SUFFIX = "\nAnswer with the number alone: "
CAPABILITIES = ("rec", "ocr", "know", "gen", "spat", "math")

METRICS = (
    MetricInfo("total", "higher", headline=True),
    MetricInfo("unparsed", "lower", headline=True),
    *(MetricInfo(name, "higher") for name in CAPABILITIES),
    MetricInfo("exactly", "higher"),
)
"""Besides these there is a metric for each exact set of capabilities, ``exactly_rec+ocr`` and so on."""

_SOURCE = "https://raw.githubusercontent.com/yuweihao/MM-Vet/7d717c2f54a584b7ed363d66e6481ce1bf648538"
DATASET = Dataset(
    name="mmvet",
    title="MM-Vet: questions, images and the judge's prompt",
    licence="data CC BY-NC 4.0, program Apache-2.0",
    page="https://github.com/yuweihao/MM-Vet",
    files=(
        File(name="mm-vet_evaluator.py", url=f"{_SOURCE}/mm-vet_evaluator.py"),
        File(
            name="mm-vet.zip",
            url="https://github.com/yuweihao/MM-Vet/releases/download/v1/mm-vet.zip",
            unpack=True,
            holds=("mm-vet",),
        ),
    ),
)


def parse_official(reply: str) -> float | None:
    """The official reading of one reply; it accepts whatever Python's float does, NaN included."""
    try:
        value = float(reply.split(" ")[0].strip())
    except ValueError:
        return None
    return None if value > 1.0 or value < 0.0 else value


def parse_strict(reply: str) -> float | None:
    """The strict reading: the whole reply is one of the eleven grades."""
    text = reply.strip()
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        return None
    try:
        tenths = Decimal(text) * 10
    except InvalidOperation:
        return None
    return int(tenths) / 10 if tenths == int(tenths) and 0 <= tenths <= 10 else None


@dataclass(frozen=True, slots=True)
class Question:
    """One record of ``mm-vet.json``."""

    id: str
    image: str
    question: str
    answer: str
    capabilities: tuple[str, ...]

    @property
    def combination(self) -> str:
        """The exact set of capabilities, named in one order whatever the file's."""
        return "+".join(self.capabilities)


@dataclass(frozen=True, slots=True)
class Grade:
    """What the judge's replies to one question came to."""

    score: float
    parsed: bool
    replies: tuple[str, ...]


BASIC_FIGURES = ("total", "unparsed", *CAPABILITIES)


def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Total, unparsed share, each capability and each exact combination, all in percent."""
    runs = sum(name.startswith("score@") for name in counts)
    values = {"total": _mean_grade(counts, ""), "unparsed": ratio(counts["unparsed"], counts["n"] * runs)}
    for key in counts:
        if key.startswith("n:"):
            values[key[2:]] = _mean_grade(counts, key[1:])
        elif key.startswith("n="):
            values[f"exactly_{key[2:]}"] = _mean_grade(counts, key[1:])
    return values


def _mean_grade(counts: Mapping[str, Array], kind: str) -> Array:
    mean = ratio(counts[f"score{kind}"], counts[f"n{kind}"])
    # One NaN grade makes the official mean NaN; here the figure is undefined and says so.
    return np.where(counts[f"nan{kind}"] > 0, np.nan, mean)


@dataclass(eq=False, repr=False)
class MMVet(Judged[Question, Grade]):
    """MM-Vet over the unpacked folder with ``mm-vet.json``, ``images/`` and ``mm-vet_evaluator.py``.

    A prompt in a .py is its ``prompt``; ``runs`` says how often every answer is graded.
    """

    name = "mmvet"
    title = "MM-Vet"
    dataset = DATASET
    metrics = METRICS
    figures = staticmethod(figures)

    _: KW_ONLY
    runs: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.runs < 1:
            raise InputError(f"{self.runs} grading runs: at least one is needed")

    def _record(self, question: Question) -> Record:
        return Record(
            id=question.id, image=question.image, prompt=question.question, max_new_tokens=MAX_NEW_TOKENS
        )

    def _asking(self, judge: Judge) -> tuple[str, Callable[[Question, str, int], Grade]]:
        path = find_prompt(self.data_dir, PROMPTS, self.prompt, self.name)
        prompt = read_prompt(path, PROMPT_NAMES)
        suffixes = (text for text in strings_of(path) if text.startswith("\n") and text.endswith("(digit): "))
        return prompt, partial(self._grade, judge, prompt, next(suffixes, OWN_SUFFIX))

    def _grade(
        self, judge: Judge, prompt: str, suffix: str, question: Question, answer: str, run: int
    ) -> Grade:
        text = ask_text(prompt, question, answer)
        replies = [judge.ask(user(text, max_tokens=JUDGE_TOKENS, sample=run))]
        read = parse_strict if self.rules == "strict" else parse_official
        score = read(replies[0])
        if self.rules == "official":
            for attempt, temperature in enumerate(RETRY_TEMPERATURES):
                if score is not None:
                    break
                # The first repeat is at temperature 0 too: the number of the try keeps its verdict apart.
                sample = run * (len(RETRY_TEMPERATURES) + 1) + attempt + 1
                again = user(text + suffix, temperature=temperature, max_tokens=JUDGE_TOKENS, sample=sample)
                replies.append(judge.ask(again))
                score = read(replies[-1])
        return Grade(0.0 if score is None else score, score is not None, tuple(replies))

    def _item(self, question: Question, answer: str, verdicts: Sequence[Grade]) -> Item:
        return grade_item(question, answer, verdicts, self._combinations)

    @cached_property
    def _combinations(self) -> list[str]:
        return sorted({question.combination for question in self.questions.values()})

    def _metrics(self, items: Sequence[Item]) -> dict[str, Metric]:
        return intervals(
            items, figures, reasons=dict.fromkeys(BASIC_FIGURES, "no such question, or a NaN grade")
        )

    def _tallies(self, counts: Mapping[str, float]) -> dict[str, Any]:
        counted = {name: int(counts.get(f"n:{name}", 0)) for name in CAPABILITIES}
        return {"runs": self.runs, "capability_counts": counted}

    def _official(self, items: Sequence[Item]) -> dict[str, float | None]:
        return official_figures(items) if self.rules == "official" else {}

    def _read_questions(self, folder: Path) -> Mapping[Id, Question]:
        path = next((p for p in (folder / QUESTIONS, folder / "mm-vet" / QUESTIONS) if p.is_file()), None)
        if path is None:
            raise InputError(f"there is no {folder / QUESTIONS}", hint="reweigh data get mmvet")
        rows = read_json(path)
        if not isinstance(rows, dict) or not rows:
            raise InputError(f"{path} is not an object of questions by id")
        images = path.parent.relative_to(folder) / "images"
        return {identity: _question(identity, row, path, images) for identity, row in rows.items()}


def _question(identity: str, row: Any, path: Path, images: Path) -> Question:
    try:
        named = [str(name) for name in row["capability"]]
        order = {name: index for index, name in enumerate(CAPABILITIES)}
        return Question(
            identity,
            (images / str(row["imagename"])).as_posix(),
            str(row["question"]),
            str(row["answer"]),
            tuple(sorted(set(named), key=lambda name: (order.get(name, len(order)), name))),
        )
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{path}, question {identity!r}, is not as expected ({error!r})",
            hint="each has imagename, question, answer and capability",
        ) from error


def ask_text(prompt: str, question: Question, answer: str) -> str:
    """The judge's prompt with the row to complete; newlines and bars of the answer stay as they are."""
    reference = question.answer.replace("<AND>", " <AND> ").replace("<OR>", " <OR> ")
    return prompt + "\n" + " | ".join([question.question, reference, answer, ""])


def grade_item(question: Question, answer: str, grades: Sequence[Grade], combinations: Sequence[str]) -> Item:
    """Turn the grades of one answer (one for each run) into an item."""
    scores = [grade.score for grade in grades]
    undefined = any(math.isnan(score) for score in scores)
    mean = 0.0 if undefined else sum(scores) / len(scores)
    counts = {"n": 1.0, "score": mean, "nan": float(undefined)}
    counts["unparsed"] = float(sum(not grade.parsed for grade in grades))
    for run, score in enumerate(scores):
        counts[f"score@{run}"] = 0.0 if math.isnan(score) else score
    kinds = [(f":{name}", name in question.capabilities) for name in CAPABILITIES]
    kinds += [(f"={name}", name == question.combination) for name in combinations]
    for kind, own in kinds:
        counts |= {f"n{kind}": float(own), f"score{kind}": mean * own, f"nan{kind}": float(undefined and own)}
    return Item(
        id=question.id,
        image=question.image,
        counts=counts,
        details={
            "capabilities": list(question.capabilities),
            "question": question.question,
            "reference": question.answer,
            "response": answer,
            "replies": [list(grade.replies) for grade in grades],
            "score": None if undefined else mean,
            "parsed": all(grade.parsed for grade in grades),
        },
    )


def official_figures(items: Sequence[Item]) -> dict[str, float | None]:
    """What the official program writes for items in the file's order: one decimal, and the runs' spread.

    Grades are added one by one and rounded by NumPy, as there: where a figure ends on a half, its last bit
    decides.
    """
    runs = sum(name.startswith("score@") for name in items[0].counts)
    sums: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    for item in items:
        names = ["total", *item.details["capabilities"], "exactly_" + "+".join(item.details["capabilities"])]
        for name in names:
            sizes[name] = sizes.get(name, 0) + 1
            row = sums.setdefault(name, [0.0] * runs)
            for run in range(runs):
                row[run] += math.nan if item.counts["nan"] else item.counts[f"score@{run}"]
    totals = np.array(sums["total"]) / sizes["total"] * 100
    values = {name: (np.array(row) / sizes[name] * 100).mean() for name, row in sorted(sums.items())}
    return {name: _rounded(value) for name, value in (values | {"std": totals.std()}).items()}


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else float(np.round(value, 1))
