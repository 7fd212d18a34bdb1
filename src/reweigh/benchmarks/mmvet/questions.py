"""MM-Vet's own files: 218 questions with their images and capabilities, and the judge's prompt, which is not shipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from reweigh.benchmarks.base import Id, Record
from reweigh.benchmarks.data.dataset import Dataset, File
from reweigh.benchmarks.judge.prompts import read_prompt
from reweigh.benchmarks.judged import Judged
from reweigh.errors import InputError
from reweigh.files.artifacts import read_json

MAX_NEW_TOKENS = 1024
QUESTIONS = "mm-vet.json"
PROMPTS = ("mmvet_prompt.txt", "mm-vet_evaluator.py")
PROMPT_NAMES = ("prompt",)
CAPABILITIES = ("rec", "ocr", "know", "gen", "spat", "math")

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

    def report_details(self, answer: str) -> dict[str, Any]:
        """What a report shows of the question and an answer, for either kind of judge."""
        return {
            "capabilities": list(self.capabilities),
            "question": self.question,
            "reference": self.answer,
            "response": answer,
        }


Verdict = TypeVar("Verdict")


class MMVetQuestions(Judged[Question, Verdict]):
    """MM-Vet over the unpacked folder with ``mm-vet.json``, ``images/`` and ``mm-vet_evaluator.py``.

    A prompt in a .py is its ``prompt``.
    """

    dataset = DATASET
    prompts = PROMPTS

    def _record(self, question: Question) -> Record:
        return Record(
            id=question.id, image=question.image, prompt=question.question, max_new_tokens=MAX_NEW_TOKENS
        )

    def _read_prompt(self, path: Path) -> str:
        return read_prompt(path, PROMPT_NAMES)

    def _filled(self, prompt: str, question: Question, answer: str) -> str:
        """The judge's prompt with the row to complete; newlines and bars of the answer stay as they are."""
        reference = question.answer.replace("<AND>", " <AND> ").replace("<OR>", " <OR> ")
        return prompt + "\n" + " | ".join([question.question, reference, answer, ""])

    @cached_property
    def _combinations(self) -> list[str]:
        """Every exact set of capabilities that a question has."""
        return sorted({question.combination for question in self.questions.values()})

    def _read_questions(self, folder: Path) -> Mapping[Id, Question]:
        path = next((p for p in (folder / QUESTIONS, folder / "mm-vet" / QUESTIONS) if p.is_file()), None)
        if path is None:
            raise InputError(f"there is no {folder / QUESTIONS}", hint="reweigh data mmvet")
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


def kinds(question: Question, combinations: list[str]) -> list[tuple[str, bool]]:
    """Endings of the counts of each capability (``:rec``) and exact set (``=rec+ocr``), and whether it is the question's."""
    found = [(f":{name}", name in question.capabilities) for name in CAPABILITIES]
    return found + [(f"={name}", name == question.combination) for name in combinations]


def named_kinds(counts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The figures that counts lead to, ``rec`` or ``exactly_rec+ocr``, with the ending of their counts."""
    for key in counts:
        if key.startswith(("n:", "n=")):
            yield (key[2:] if key[1] == ":" else f"exactly_{key[2:]}"), key[1:]
