"""Benchmarks rated by a judge: their questions, the judge's prompt, and the verdicts on the answers.

No prompt is shipped: the official programs keep theirs as a string in their source, which is parsed and never run.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from reweigh.errors import InputError
from reweigh.files.artifacts import sha256_text
from reweigh.lab.bootstrap import sum_counts
from reweigh.lab.tasks.base import AskingBenchmark, Id, Item, Question, Response, Summary, check_responses
from reweigh.lab.tasks.judge import Judge, ask_all, close_judge
from reweigh.progress import bar

Rules = Literal["official", "strict"]
HINT = "set the key in OPENAI_API_KEY, or name a server with --judge-option url=URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedQuestion(Question):
    """A question of a judged benchmark.

    Attributes:
        answer: The human answer.
        parts: The parts of the benchmark it belongs to, by the ending of their counts.
        about: The same for a report.
        contents: What the judge is told of the image.
    """

    text: str
    answer: str
    parts: tuple[str, ...]
    about: Mapping[str, Any]
    contents: tuple[str, ...] = ()


@dataclass(eq=False, repr=False)
class Judged(AskingBenchmark):
    """A benchmark over a folder with its questions, its images and its official program.

    Args:
        data_dir: The folder.
        judge: Who rates; needed for scoring only.
        prompt: Another file with the judge's prompt (.txt, or a .py that assigns it).
        rules: How replies are read: as the official program does, or by the paper's wording (``strict``).
        concurrency: Questions to ask the judge at once.
    """

    judged = True

    prompt_files: ClassVar[tuple[str, ...]]
    """Files of the benchmark that may hold the judge's prompt."""
    prompt_name: ClassVar[str]
    """The variable that holds it in a Python file."""
    by_part: ClassVar[tuple[str, ...]] = ("n", "score")
    """Counts that are kept for each part of the benchmark, too."""

    _: KW_ONLY
    judge: Judge | None = None
    prompt: str | Path | None = None
    rules: Rules = "strict"
    concurrency: int = 8
    runs: int = field(default=1, init=False)
    """How often every answer is rated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rules not in get_args(Rules):
            raise InputError(f"unknown rules {self.rules!r}", hint=f"known: {', '.join(get_args(Rules))}")
        self._rated_by: dict[str, Any] = {}

    @cached_property
    def questions(self) -> Mapping[Id, JudgedQuestion]:
        return self._read_questions()

    def score(
        self, responses: Sequence[Response], *, ids: Collection[Id] | None = None
    ) -> tuple[list[Item], Summary]:
        """Ask the judge about every response."""
        checked = self._in_order(check_responses(responses, known=self.known_ids(), ids=ids))
        who = self._require_judge().describe()
        filled = [self._filled(self.questions[one.id], one.text) for one in checked]
        tasks = [partial(self._ask, text, run) for text in filled for run in range(self.runs)]
        with bar("judging", total=len(tasks), unit="verdict") as progress:
            verdicts = ask_all(tasks, concurrency=self.concurrency, advance=progress.update)
        items = [
            self._item(one, verdicts[index * self.runs : (index + 1) * self.runs])
            for index, one in enumerate(checked)
        ]
        self._rated_by = {"judge": who, "prompt_sha256": sha256_text(self._prompt)}
        return items, self.summarize(items)

    def summarize(self, items: Sequence[Item]) -> Summary:
        return super().summarize(self._in_order(items))

    def describe(self, items: Sequence[Item]) -> dict[str, Any]:
        """Name the judge and its prompt, once it has been asked."""
        unparsed = int(sum_counts(items).get("unparsed", 0))
        return {**self._rated_by, "rules": self.rules, "unparsed": unparsed}

    def close(self) -> None:
        """Close the judge; threads waiting for it would keep a stopped command alive."""
        close_judge(self.judge)

    @cached_property
    def _prompt(self) -> str:
        return self._read_prompt(self._prompt_path())

    def _prompt_path(self) -> Path:
        if self.prompt is not None:
            return Path(self.prompt)
        for name in self.prompt_files:
            if (path := self.data_dir / name).is_file():
                return path
        raise InputError(
            f"{self.data_dir} contains none of {', '.join(self.prompt_files)}, so there is no judge prompt",
            hint=f"reweigh data {self.name}, or pass the file with --judge-option prompt=FILE",
        )

    def _read_prompt(self, path: Path) -> str:
        return read_prompt(path, self.prompt_name)

    def _require_judge(self) -> Judge:
        if self.judge is None:
            raise InputError(f"{self.title} needs a judge, but none was given", hint=HINT)
        return self.judge

    def _in_order(self, rows: Sequence[Any]) -> list[Any]:
        """Sort responses or items by their questions."""
        order = {identity: index for index, identity in enumerate(self.questions)}
        return sorted(rows, key=lambda row: order.get(row.id, len(order)))

    @abstractmethod
    def _read_questions(self) -> Mapping[Id, JudgedQuestion]:
        """Read the benchmark's own file."""

    @abstractmethod
    def _filled(self, question: JudgedQuestion, answer: str) -> str:
        """Fill in the judge's prompt for one answer."""

    @abstractmethod
    def _ask(self, filled: str, run: int) -> Any:
        """Ask the judge about one answer; ``run`` counts repeated ratings."""

    @abstractmethod
    def _read_verdicts(self, verdicts: Sequence[Any]) -> tuple[dict[str, float], dict[str, Any]]:
        """Turn the verdicts on one answer, one for each run, into counts and details of an item."""

    @property
    @abstractmethod
    def _parts(self) -> Sequence[str]:
        """All parts of the benchmark, by the ending of their counts."""

    def _item(self, response: Response, verdicts: Sequence[Any]) -> Item:
        question = self.questions[response.id]
        counts, shown = self._read_verdicts(verdicts)
        counts = {"n": 1, **counts}
        for part in self._parts:
            own = part in question.parts
            counts |= {f"{name}{part}": counts[name] * own for name in self.by_part}
        asked = {"question": question.text, "reference": question.answer, "response": response.text}
        return Item(
            id=response.id,
            image=question.image,
            counts={name: float(value) for name, value in counts.items()},
            details={**question.about, **asked, **shown},
        )


def read_prompt(path: Path, name: str) -> str:
    """Read a prompt from a text file, or from the string assigned to ``name`` in a Python file."""
    if path.suffix != ".py":
        return _text(path)
    for node in _nodes(path):
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == name for target in node.targets
        ):
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    raise InputError(
        f"{path} assigns no text to {name}",
        hint="give the benchmark's own program, or its prompt as a .txt file",
    )


def strings_of(path: Path) -> list[str]:
    """Return all string constants of a Python file; none of another file."""
    nodes = _nodes(path) if path.suffix == ".py" else []
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _nodes(path: Path) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(_text(path))))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is not Python source ({error})") from error


def _text(path: Path) -> str:
    try:
        # Keep newlines as they are: the prompt's bytes decide the verdict.
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"the prompt file {path} cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error})") from error
