"""MMHal-Bench's own files: 96 questions with their images, and the judge's prompt, which is not shipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from reweigh.benchmarks.base import Id, Record, Response
from reweigh.benchmarks.bootstrap import Array, ratio
from reweigh.benchmarks.data.dataset import Dataset, File
from reweigh.benchmarks.judge.prompts import read_prompt
from reweigh.benchmarks.judged import Judged
from reweigh.errors import InputError
from reweigh.files.artifacts import read_json

RECORDS = 96
MAX_NEW_TOKENS = 256
QUESTIONS = "response_template.json"
PROMPTS = ("mmhal_prompt.txt", "eval_gpt4.py", "eval_gpt_mmhal.py")
PROMPT_NAMES = ("template",)
TYPES = ("attribute", "adversarial", "comparison", "counting", "relation", "environment", "holistic", "other")
HALLUCINATED_BELOW = 3

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

    def report_details(self, answer: str) -> dict[str, Any]:
        """What a report shows of the question and an answer, for either kind of judge."""
        return {
            "type": self.type,
            "question": self.question,
            "reference": self.answer,
            "response": answer,
        }


Verdict = TypeVar("Verdict")


class MMHalQuestions(Judged[Question, Verdict]):
    """MMHal-Bench over a folder with ``response_template.json``, ``images/`` and the official program.

    A prompt in a .py is its ``template``.
    """

    dataset = DATASET
    prompts = PROMPTS

    @classmethod
    def read_responses(
        cls, path: Path, *, id_key: str | None = None, text_key: str | None = None
    ) -> list[Response]:
        """Read the official form, the question file with ``model_answer`` filled in, or any other file.

        Answers in the official form have no id: their order says which question they answer, and each row's
        question and picture are checked against it.
        """
        rows = read_json(path) if path.suffix == ".json" else None
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) and "model_answer" in row for row in rows
        ):
            return super().read_responses(path, id_key=id_key, text_key=text_key)
        if len(rows) != RECORDS:
            raise InputError(
                f"{path} has {len(rows)} answers; the official form has exactly {RECORDS}, in order"
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

    def _read_prompt(self, path: Path) -> str:
        template = read_prompt(path, PROMPT_NAMES)
        if template.count("{}") != 4:
            raise InputError(
                f"the prompt in {path} has {template.count('{}')} places marked {{}}; expected four: "
                "image contents, question, human answer, model answer"
            )
        return template

    def _filled(self, prompt: str, question: Question, answer: str) -> str:
        """Put contents, question, human answer and model answer into the four places, in this order."""
        parts = prompt.split("{}")
        values = (", ".join(question.contents), question.question, question.answer, answer)
        return parts[0] + "".join(value + part for value, part in zip(values, parts[1:], strict=True))

    def _read_questions(self, folder: Path) -> Mapping[Id, Question]:
        path = folder / QUESTIONS
        if not path.is_file():
            raise InputError(f"there is no {path}", hint="reweigh data mmhal")
        rows = read_json(path)
        if not isinstance(rows, list) or len(rows) != RECORDS:
            size = len(rows) if isinstance(rows, list) else type(rows).__name__
            raise InputError(
                f"{path} has {size} records; MMHal-Bench has exactly {RECORDS}, in its own order"
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


def type_scores(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Mean score of each question type, for either kind of judge."""
    return {f"score_{name}": ratio(counts[f"score:{name}"], counts[f"n:{name}"], scale=1.0) for name in TYPES}


def _strings(row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key)
    return (value,) if isinstance(value, str) else ()
