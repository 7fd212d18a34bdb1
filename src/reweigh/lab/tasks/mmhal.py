"""MMHal-Bench: 96 questions, each answer rated from 0 to 6 by a judge whose prompt is not shipped.

A chat judge's reply is read by one of two rules: ``official`` looks for "rating: s" anywhere in the text, digit by
digit; ``strict`` (the paper's wording) requires one whole number from 0 to 6 after "rating: ". A reply with no or
several ratings scores 0 under both and is counted as unparsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import read_json
from reweigh.lab.bootstrap import Array, ratio, sum_counts
from reweigh.lab.tasks.base import Id, Item, MetricInfo, Response
from reweigh.lab.tasks.data import Dataset, File, parsing
from reweigh.lab.tasks.judge import Request
from reweigh.lab.tasks.judged import Judged, JudgedQuestion, Rules

RECORDS = 96
RATINGS = range(7)
HALLUCINATED_BELOW = 3
TYPES = ("attribute", "adversarial", "comparison", "counting", "relation", "environment", "holistic", "other")
"""The question types, which the benchmark encodes in the order of its questions."""

NONE_RATED = "no question of this kind was rated"
METRICS = (
    MetricInfo("score", "higher", unit="", digits=2, headline=True, undefined=NONE_RATED),
    MetricInfo("hallucination_rate", "lower", headline=True, undefined=NONE_RATED),
    MetricInfo("unparsed", "lower", headline=True),
)
"""The metrics of all questions; each type has its own, ``score_attribute`` and so on."""

_SOURCE = "hf://datasets/Shengcao1006/MMHal-Bench@f5f49a938f45ed99e235b8519ba28f76832a2add"
DATASET = Dataset(
    name="mmhal",
    title="MMHal-Bench: questions, images and the judge's prompt",
    license="Apache-2.0",
    page="https://huggingface.co/datasets/Shengcao1006/MMHal-Bench",
    files=(
        File(name="response_template.json", url=f"{_SOURCE}/response_template.json"),
        File(name="eval_gpt4.py", url=f"{_SOURCE}/eval_gpt4.py"),
        File(name="test_data.zip", url=f"{_SOURCE}/test_data.zip", holds=("images",)),
    ),
)


def parse_official(reply: str) -> int | None:
    """Read as the official program does: the one digit s for which "rating: s" occurs, or None.

    It matches characters only, so 10 reads as 1, 4.5 as 4 and "underrating: 3" as 3.
    """
    text = reply.lower()
    found = [score for score in RATINGS if f"rating: {score}" in text]
    return found[0] if len(found) == 1 else None


_RATING = re.compile(r"(\w?rating: [0-9]+(?:\.[0-9]+)?)")
_VALID = {f"rating: {score}": score for score in RATINGS}


def parse_strict(reply: str) -> int | None:
    """Read strictly: all "rating: n" entries name the same whole number from 0 to 6."""
    found = set(_RATING.findall(reply.lower()))
    return _VALID.get(found.pop()) if len(found) == 1 else None


PARSERS: Mapping[Rules, Callable[[str], int | None]] = {"official": parse_official, "strict": parse_strict}


class MMHal(Judged):
    """MMHal-Bench as the paper scores it, with the official figures in addition.

    Its folder has ``response_template.json``, ``images/`` and the official program, whose prompt is its ``template``.
    """

    name = "mmhal"
    title = "MMHal-Bench"
    dataset = DATASET
    metrics = METRICS
    by_part = ("n", "score", "official_score")
    prompt_files = ("mmhal_prompt.txt", "eval_gpt4.py", "eval_gpt_mmhal.py")
    prompt_name = "template"
    max_new_tokens = 256
    _parts = tuple(f":{name}" for name in TYPES)

    @classmethod
    def read_responses(
        cls, path: Path, *, id_key: str | None = None, text_key: str | None = None
    ) -> list[Response]:
        """Read the official form, the question file with ``model_answer`` filled in, or any other file.

        Answers in the official form have no id: their order says which question they answer, and each row's
        question and picture are checked against it.
        """
        rows = None
        with suppress(ArtifactError):  # not JSON as a whole: JSON lines, or no such file
            rows = read_json(path)
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) and "model_answer" in row for row in rows
        ):
            return super().read_responses(path, id_key=id_key, text_key=text_key)
        if len(rows) != RECORDS:
            raise InputError(
                f"{path} has {len(rows)} answers; the official form has exactly {RECORDS}, in order"
            )
        answers = []
        for index, row in enumerate(rows):
            question, image = (
                row.get(key) if isinstance(row.get(key), str) else None for key in ("question", "image_src")
            )
            questions = () if question is None else (question,)
            answers.append(Response(index, row["model_answer"], questions, image))
        return answers

    def _read_prompt(self, path: Path) -> str:
        template = super()._read_prompt(path)
        if template.count("{}") != 4:
            raise InputError(
                f"the prompt in {path} has {template.count('{}')} places marked {{}}; expected four: "
                "image contents, question, human answer, model answer"
            )
        return template

    def _filled(self, question: JudgedQuestion, answer: str) -> str:
        """Put contents, question, human answer and model answer into the four places, in this order."""
        first, *parts = self._prompt.split("{}")
        values = (", ".join(question.contents), question.text, question.answer, answer)
        return first + "".join(value + part for value, part in zip(values, parts, strict=True))

    def _read_questions(self) -> Mapping[Id, JudgedQuestion]:
        path = self.data_dir / "response_template.json"
        if not path.is_file():
            raise InputError(f"there is no {path}", hint="reweigh data mmhal")
        rows = read_json(path)
        if not isinstance(rows, list) or len(rows) != RECORDS:
            size = len(rows) if isinstance(rows, list) else type(rows).__name__
            raise InputError(
                f"{path} has {size} records; MMHal-Bench has exactly {RECORDS}, in its own order"
            )
        questions: dict[Id, JudgedQuestion] = {}
        for index, row in enumerate(rows):
            kind = TYPES[index % len(TYPES)]
            with parsing(
                f"{path}, record {index}, is not as expected",
                hint="each record has image_src (or image_path), image_content, question and gt_answer",
            ):
                questions[index] = JudgedQuestion(
                    image="images/" + str(row.get("image_path") or row["image_src"]).rsplit("/", 1)[-1],
                    text=str(row["question"]),
                    answer=str(row["gt_answer"]),
                    parts=(f":{kind}",),
                    about={"type": kind},
                    contents=tuple(str(word) for word in row["image_content"]),
                )
        return questions

    @staticmethod
    def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
        return {
            "score": ratio(counts["score"], counts["n"], scale=1.0),
            "hallucination_rate": ratio(counts["hallucinated"], counts["n"]),
            "unparsed": ratio(counts["unparsed"], counts["n"]),
            **{
                f"score_{name}": ratio(counts[f"score:{name}"], counts[f"n:{name}"], scale=1.0)
                for name in TYPES
            },
        }

    def describe(self, items: Sequence[Item]) -> dict[str, Any]:
        unparsed = int(sum_counts(items).get("official_unparsed", 0))
        return {**super().describe(items), "unparsed_official": unparsed}

    def official(self, items: Sequence[Item]) -> dict[str, float | None]:
        """Compute what the official program prints for all 96: two decimals, the rate as a fraction."""
        if len(items) != RECORDS:
            return {}
        counts = sum_counts(items)
        printed: dict[str, float | None] = {
            "average_score": float(f"{counts['official_score'] / counts['n']:.2f}"),
            "hallucination_rate": float(f"{counts['official_hallucinated'] / counts['n']:.2f}"),
        }
        for name in TYPES:
            printed[f"score_{name}"] = round(counts[f"official_score:{name}"] / counts[f"n:{name}"], 2)
        return printed

    def _ask(self, filled: str, run: int) -> str:
        return self._require_judge().ask(Request(filled))

    def _read_verdicts(self, verdicts: Sequence[str]) -> tuple[dict[str, float], dict[str, Any]]:
        """Read a judge's reply by the chosen and by the official rules."""
        chosen, official = PARSERS[self.rules](verdicts[0]), parse_official(verdicts[0])
        counts: dict[str, float] = {
            "unparsed": chosen is None,
            "official_unparsed": official is None,
            "score": chosen or 0,
            "hallucinated": (chosen or 0) < HALLUCINATED_BELOW,
            "official_score": official or 0,
            "official_hallucinated": (official or 0) < HALLUCINATED_BELOW,
        }
        return counts, {"reply": verdicts[0], "score": chosen or 0, "parsed": chosen is not None}
