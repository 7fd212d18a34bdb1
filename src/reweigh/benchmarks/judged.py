"""What benchmarks rated by a judge share: options, getting verdicts for responses, the summary.

Question files, prompts and scales belong to each benchmark. ``ChatJudged`` is rated by the text of a
chat judge, ``ScaleJudged`` by the probabilities of closed questions.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

from reweigh.benchmarks.base import Benchmark, Id, Item, Record, Response, Summary, check_responses
from reweigh.benchmarks.bootstrap import sum_counts
from reweigh.benchmarks.judge.prompts import find_prompt
from reweigh.benchmarks.judge.protocol import Distribution, Judge, Rater, ScaleQuestion, ask_all, close_judge
from reweigh.benchmarks.judge.settings import CHAT, SYSTEMONE
from reweigh.errors import InputError
from reweigh.estimate import Estimate
from reweigh.files.artifacts import sha256_text
from reweigh.progress import bar

Rules = Literal["official", "strict"]
Question = TypeVar("Question")
Verdict = TypeVar("Verdict")


@dataclass(eq=False, repr=False)
class Judged(Benchmark, Generic[Question, Verdict]):
    """A benchmark over a folder with its questions, its images and its official program.

    Args:
        data_dir: That folder.
        judge: Who rates; needed for scoring only.
        prompt: Another file with the judge's prompt (.txt, or a .py that assigns it).
        concurrency: Questions to ask the judge at once.
    """

    judged: ClassVar[bool] = True
    prompts: ClassVar[tuple[str, ...]]
    """Files of the benchmark that may hold the judge's prompt."""

    data_dir: Path
    _: KW_ONLY
    judge: Judge | Rater | None = None
    prompt: str | Path | None = None
    concurrency: int = 8
    runs: int = field(default=1, init=False)
    """How often every answer is rated."""

    def __post_init__(self) -> None:
        self.data_dir = Path(self.data_dir)

    @cached_property
    def questions(self) -> Mapping[Id, Question]:
        """The questions by id, in the benchmark's order."""
        return self._read_questions(self.data_dir)

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """List the questions in the official order, verbatim."""
        return [self._record(question) for question in list(self.questions.values())[:limit]]

    def known_ids(self) -> Collection[Id]:
        """Ids of the questions."""
        return self.questions.keys()

    def question_of(self, identity: Id) -> str | None:
        """The question of an id, verbatim."""
        found = self.questions.get(identity)
        return None if found is None else self._record(found).prompt

    def score(
        self, responses: Sequence[Response], *, ids: Collection[Id] | None = None
    ) -> tuple[list[Item], Summary]:
        """Ask the judge about every response and take its verdicts."""
        checked = self._in_order(check_responses(responses, known=self.questions.keys(), ids=ids))
        pairs = [(self.questions[response.id], response.text) for response in checked]
        self._require_judge()
        prompt = self._read_prompt(self._prompt_path())
        ask = self._make_ask(prompt)
        tasks = [partial(ask, *pair, run) for pair in pairs for run in range(self.runs)]
        with bar("judging", total=len(tasks), unit="verdict") as progress:
            verdicts = ask_all(tasks, concurrency=self.concurrency, advance=progress.update)
        items = [
            self._item(*pair, verdicts[index * self.runs : (index + 1) * self.runs])
            for index, pair in enumerate(pairs)
        ]
        who = None if self.judge is None else self.judge.describe()
        return items, self._summary(items, {"judge": who, "prompt_sha256": sha256_text(prompt)})

    def summarise(self, items: Sequence[Item]) -> Summary:
        """Recompute the summary from items, in any order."""
        return self._summary(self._in_order(items), {})

    def close(self) -> None:
        """Close the judge; threads waiting for it would keep a stopped command alive."""
        close_judge(self.judge)

    def _prompt_path(self) -> Path:
        named = self.name if self.dataset is None else self.dataset.name
        return find_prompt(self.data_dir, self.prompts, self.prompt, named)

    def _in_order(self, rows: Sequence[Any]) -> list[Any]:
        """Responses or items in the order of their questions."""
        order = {identity: index for index, identity in enumerate(self.questions)}
        return sorted(rows, key=lambda row: order.get(row.id, len(order)))

    def _summary(self, items: Sequence[Item], judge: Mapping[str, Any]) -> Summary:
        counts = sum_counts(items) if items else {}
        return Summary.of(
            items,
            benchmark=self.name,
            metrics=self._metrics(items),
            scorer={**judge, **self._scorer(counts)},
            official=self._official(items) if len(items) == len(self.questions) else {},
        )

    def _official(self, items: Sequence[Item]) -> dict[str, float | None]:
        """What the official program prints for the answers to all questions, in order; nothing if it cannot."""
        return {}

    @abstractmethod
    def _require_judge(self) -> None:
        """Refuse to score without a judge of the right kind."""

    @abstractmethod
    def _read_questions(self, folder: Path) -> Mapping[Id, Question]:
        """Read the benchmark's own file."""

    @abstractmethod
    def _record(self, question: Question) -> Record:
        """The record of a question."""

    @abstractmethod
    def _read_prompt(self, path: Path) -> str:
        """The judge's prompt from its file."""

    @abstractmethod
    def _filled(self, prompt: str, question: Question, answer: str) -> str:
        """The judge's prompt about one answer."""

    @abstractmethod
    def _make_ask(self, prompt: str) -> Callable[[Question, str, int], Verdict]:
        """Make the function that asks about one answer in one of the runs."""

    @abstractmethod
    def _item(self, question: Question, answer: str, verdicts: Sequence[Verdict]) -> Item:
        """Turn the verdicts on one answer, one for each run, into an item."""

    @abstractmethod
    def _metrics(self, items: Sequence[Item]) -> dict[str, Estimate]:
        """The figures with their intervals."""

    @abstractmethod
    def _scorer(self, counts: Mapping[str, float]) -> dict[str, Any]:
        """What describes the scoring, besides the judge and its prompt."""


@dataclass(eq=False, repr=False)
class ChatJudged(Judged[Question, Verdict]):
    """Rated by what a chat judge writes, as the official programs do.

    Args:
        rules: How replies are read: as the official program does, or by the paper's wording (``strict``).
    """

    judge_kind: ClassVar[str] = CHAT

    _: KW_ONLY
    rules: Rules = "strict"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rules not in get_args(Rules):
            raise InputError(
                f"the rules {self.rules!r} are unknown", hint=f"known: {', '.join(get_args(Rules))}"
            )

    def _require_judge(self) -> None:
        self._chat()

    def _chat(self) -> Judge:
        """The judge, or an error that says how to give one."""
        if isinstance(self.judge, Judge):
            return self.judge
        if self.judge is None:
            raise InputError(
                f"{self.title} needs a judge, but none was given",
                hint="set the key in OPENAI_API_KEY, or give a server with --judge-option url=URL",
            )
        raise InputError(
            f"{self.name} is rated by a chat judge, and {type(self.judge).__name__} answers closed questions only",
            hint=f"use {' or '.join(self.rated_as.values()) or 'another judge'}",
        )

    def _scorer(self, counts: Mapping[str, float]) -> dict[str, Any]:
        return {"rules": self.rules, "unparsed": int(counts.get("unparsed", 0))}


class ScaleJudged(Judged[Question, Distribution]):
    """Rated over closed questions: the benchmark's own prompt is the state, its scale the levels.

    The rating is the most likely level; probabilities and expected rating are kept. Nothing is left unparsed.
    """

    judge_kind: ClassVar[str] = SYSTEMONE
    instructions: ClassVar[str]
    """What is asked about the filled-in prompt."""

    def _require_judge(self) -> None:
        self._rater()

    def _rater(self) -> Rater:
        """The judge, or an error that says how to give one."""
        if isinstance(self.judge, Rater):
            return self.judge
        seen = "none was given" if self.judge is None else f"{type(self.judge).__name__} answers with text"
        raise InputError(
            f"{self.title} needs a judge that answers closed questions, and {seen}",
            hint="--judge systemone --judge-option model=NAME, beside `transformers serve NAME`",
        )

    def _make_ask(self, prompt: str) -> Callable[[Question, str, int], Distribution]:
        rater, levels = self._rater(), self._levels(prompt)

        def ask(question: Question, answer: str, _run: int) -> Distribution:
            state = self._filled(prompt, question, answer)
            return rater.rate(ScaleQuestion(state=state, instructions=self.instructions, levels=levels))

        return ask

    def _scorer(self, counts: Mapping[str, float]) -> dict[str, Any]:
        return {"instructions": self.instructions}

    @abstractmethod
    def _levels(self, prompt: str) -> tuple[str, ...]:
        """What each level means, the lowest first."""
