"""MM-Vet: 218 questions, each answer graded from 0 to 1 by a judge whose prompt is not shipped.

A chat judge is asked by one of two rules. ``strict`` is the paper's: one question at temperature 0, and the whole reply
must be one of 0.0, 0.1, ..., 1.0 (so 0.85 is unparsed and scores 0). ``official`` is the official program's: the text
before the first blank is parsed by Python's float and must be in [0, 1]; otherwise it asks again with a suffix, at a
higher temperature each time, and gives up after five readings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from reweigh.errors import InputError
from reweigh.files.artifacts import read_json
from reweigh.lab.bootstrap import Array, ratio, sum_counts
from reweigh.lab.tasks.base import Id, Item, MetricInfo
from reweigh.lab.tasks.data import Dataset, File, parsing
from reweigh.lab.tasks.judge import Request
from reweigh.lab.tasks.judged import Judged, JudgedQuestion, strings_of

CAPABILITIES = ("rec", "ocr", "know", "gen", "spat", "math")
JUDGE_TOKENS = 3
RETRY_TEMPERATURES = (0.0, 0.5, 1.0, 1.5)
"""Temperatures of repeated questions; the official program asks once more at 2.0 and ignores the reply."""
OWN_SUFFIX = "\nAnswer with the number alone: "

NO_GRADE = "no question of this kind, or a NaN grade"
METRICS = (
    MetricInfo("total", "higher", headline=True, undefined=NO_GRADE),
    MetricInfo("unparsed", "lower", headline=True),
    *(MetricInfo(name, "higher", undefined=NO_GRADE) for name in (*CAPABILITIES, "exactly")),
)
"""The metrics of all questions, of each capability, and of each exact set of them (``exactly_rec+ocr`` and so on)."""

_SOURCE = "https://raw.githubusercontent.com/yuweihao/MM-Vet/7d717c2f54a584b7ed363d66e6481ce1bf648538"
DATASET = Dataset(
    name="mmvet",
    title="MM-Vet: questions, images and the judge's prompt",
    license="data CC BY-NC 4.0, program Apache-2.0",
    page="https://github.com/yuweihao/MM-Vet",
    files=(
        File(
            name="mm-vet_evaluator.py",
            url=f"{_SOURCE}/mm-vet_evaluator.py",
            checksum="sha256:f68b3f8a27c9ae1717095276594810e3af90b16a7a26d62be79c5c08328157b3",
        ),
        File(
            name="mm-vet.zip",
            url="https://github.com/yuweihao/MM-Vet/releases/download/v1/mm-vet.zip",
            holds=("mm-vet",),
        ),
    ),
)


def _named_parts(counts: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    """Yield the figures of parts, ``rec`` or ``exactly_rec+ocr``, with the ending of their counts."""
    for key in counts:
        if key.startswith(("n:", "n=")):
            yield (key[2:] if key[1] == ":" else f"exactly_{key[2:]}"), key[1:]


def parse_official(reply: str) -> float | None:
    """Read one reply as the official program does; it accepts whatever Python's float does, even NaN."""
    try:
        value = float(reply.split(" ")[0].strip())
    except ValueError:
        return None
    return None if value > 1.0 or value < 0.0 else value


def parse_strict(reply: str) -> float | None:
    """Read one reply strictly: the whole of it is one of the eleven grades."""
    text = reply.strip()
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        return None
    try:
        tenths = Decimal(text) * 10
    except InvalidOperation:
        return None
    return int(tenths) / 10 if tenths == int(tenths) and 0 <= tenths <= 10 else None


Grade: TypeAlias = tuple[float | None, list[str]]
"""A score, None if no reply could be read, and the replies to one question."""


@dataclass(eq=False, repr=False)
class MMVet(Judged):
    """MM-Vet as the paper scores it; ``runs`` says how often every answer is graded.

    Its unpacked folder has ``mm-vet.json``, ``images/`` and ``mm-vet_evaluator.py``, whose prompt is its ``prompt``.
    """

    name = "mmvet"
    title = "MM-Vet"
    dataset = DATASET
    metrics = METRICS
    prompt_files = ("mmvet_prompt.txt", "mm-vet_evaluator.py")
    prompt_name = "prompt"
    max_new_tokens = 1024
    by_part = ("n", "score", "nan")

    _: KW_ONLY
    runs: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.runs < 1:
            raise InputError(f"runs must be at least 1, not {self.runs}")

    @staticmethod
    def figures(counts: Mapping[str, Array]) -> dict[str, Array]:

        def mean(kind: str) -> Array:
            # One NaN grade makes the official mean NaN; here the figure is undefined, with a reason.
            grades = ratio(counts[f"score{kind}"], counts[f"n{kind}"])
            return np.where(counts[f"nan{kind}"] > 0, np.nan, grades)

        runs = sum(name.startswith("score@") for name in counts)
        values = {"total": mean(""), "unparsed": ratio(counts["unparsed"], counts["n"] * runs)}
        return values | {name: mean(kind) for name, kind in _named_parts(counts)}

    def describe(self, items: Sequence[Item]) -> dict[str, Any]:
        total = sum_counts(items)
        counted = {name: int(total.get(f"n:{name}", 0)) for name in CAPABILITIES}
        return {**super().describe(items), "capability_counts": counted, "runs": self.runs}

    def _filled(self, question: JudgedQuestion, answer: str) -> str:
        """Append the row to complete to the prompt; newlines and bars in the answer stay as they are."""
        reference = question.answer.replace("<AND>", " <AND> ").replace("<OR>", " <OR> ")
        return self._prompt + "\n" + " | ".join([question.text, reference, answer, ""])

    def _read_questions(self) -> Mapping[Id, JudgedQuestion]:
        folder, name = self.data_dir, "mm-vet.json"
        path = next((path for path in (folder / name, folder / "mm-vet" / name) if path.is_file()), None)
        if path is None:
            raise InputError(f"there is no {folder / name}", hint="reweigh data mmvet")
        rows = read_json(path)
        if not isinstance(rows, dict) or not rows:
            raise InputError(f"{path} is not an object of questions by id")
        images = path.parent.relative_to(folder) / "images"
        order = {capability: index for index, capability in enumerate(CAPABILITIES)}
        questions: dict[Id, JudgedQuestion] = {}
        for identity, row in rows.items():
            with parsing(
                f"{path}, question {identity!r}, is not as expected",
                hint="each has imagename, question, answer and capability",
            ):
                needed = {str(capability) for capability in row["capability"]}
                # one order, whatever the order in the file
                names = sorted(needed, key=lambda one: (order.get(one, len(order)), one))
                questions[identity] = JudgedQuestion(
                    image=(images / str(row["imagename"])).as_posix(),
                    text=str(row["question"]),
                    answer=str(row["answer"]),
                    parts=(*(f":{name}" for name in names), f"={'+'.join(names)}"),
                    about={"capabilities": names},
                )
        return questions

    @cached_property
    def _parts(self) -> list[str]:
        """Each capability (``:rec``), and each exact set of capabilities that a question has (``=rec+ocr``)."""
        exact = {part for question in self.questions.values() for part in question.parts if part[0] == "="}
        return [*(f":{name}" for name in CAPABILITIES), *sorted(exact)]

    def official(self, items: Sequence[Item]) -> dict[str, float | None]:
        """Compute what the official program writes for all questions; nothing under other rules."""
        whole = self.rules == "official" and len(items) == len(self.questions)
        return official_figures(items) if whole else {}

    @cached_property
    def _suffix(self) -> str:
        """The text that the official program adds when it asks again."""
        texts = strings_of(self._prompt_path())
        return next(
            (text for text in texts if text.startswith("\n") and text.endswith("(digit): ")), OWN_SUFFIX
        )

    def _ask(self, filled: str, run: int) -> Grade:
        judge = self._require_judge()
        read = parse_strict if self.rules == "strict" else parse_official
        replies = [judge.ask(Request(filled, max_tokens=JUDGE_TOKENS, sample=run))]
        score = read(replies[0])
        for attempt, temperature in enumerate(RETRY_TEMPERATURES if self.rules == "official" else ()):
            if score is not None:
                break
            # The first repeat is also at temperature 0; the sample number keeps its verdict separate.
            sample = run * (len(RETRY_TEMPERATURES) + 1) + attempt + 1
            again = Request(
                filled + self._suffix, temperature=temperature, max_tokens=JUDGE_TOKENS, sample=sample
            )
            replies.append(judge.ask(again))
            score = read(replies[-1])
        return score, replies

    def _read_verdicts(self, verdicts: Sequence[Grade]) -> tuple[dict[str, float], dict[str, Any]]:
        scores = [score or 0.0 for score, _ in verdicts]
        undefined = any(math.isnan(score) for score in scores)
        mean = 0.0 if undefined else sum(scores) / len(scores)
        unparsed = sum(score is None for score, _ in verdicts)
        counts = {"score": mean, "nan": undefined, "unparsed": unparsed}
        counts |= {f"score@{run}": 0.0 if math.isnan(score) else score for run, score in enumerate(scores)}
        return counts, {
            "replies": [replies for _, replies in verdicts],
            "score": None if undefined else mean,
            "parsed": not unparsed,
        }


def official_figures(items: Sequence[Item]) -> dict[str, float | None]:
    """Compute what the official program writes for items in the file's order: one decimal, and the spread of runs.

    Grades are added one by one and rounded by NumPy as there, because the last bit decides how a half is rounded.
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
    values["std"] = totals.std()
    return {name: None if math.isnan(value) else float(np.round(value, 1)) for name, value in values.items()}
