"""What benchmarks rated by a judge share: options, the way from responses to verdicts, the summary.

Knows no question file, no prompt and no scale; those are the benchmark's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

from reweigh.artifacts import sha256_text
from reweigh.benchmarks.base import Benchmark, Id, Item, Metric, Record, Response, Summary, check_responses
from reweigh.benchmarks.bootstrap import sum_counts
from reweigh.benchmarks.judge.protocol import Judge, ask_all, needed
from reweigh.errors import InputError
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
        rules: How replies are read: as the official program does, or by the paper's wording (``strict``).
        prompt: Another file with the judge's prompt (.txt, or a .py that assigns it).
        concurrency: Questions put to the judge at once.
    """

    judged: ClassVar[bool] = True

    data_dir: Path
    _: KW_ONLY
    judge: Judge | None = None
    rules: Rules = "strict"
    prompt: str | Path | None = None
    concurrency: int = 8
    runs: int = field(default=1, init=False)
    """How often every answer is rated."""

    def __post_init__(self) -> None:
        self.data_dir = Path(self.data_dir)
        if self.rules not in get_args(Rules):
            raise InputError(
                f"no rules are called {self.rules!r}", hint=f"known: {', '.join(get_args(Rules))}"
            )

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
        """Ask the judge about every response and read its replies."""
        checked = self._in_order(check_responses(responses, known=self.questions.keys(), ids=ids))
        pairs = [(self.questions[response.id], response.text) for response in checked]
        judge = needed(self.judge, self.title)
        prompt, ask = self._asking(judge)
        tasks = [partial(ask, *pair, run) for pair in pairs for run in range(self.runs)]
        with bar("judging", total=len(tasks), unit="verdict") as progress:
            verdicts = ask_all(tasks, concurrency=self.concurrency, advance=progress.update)
        items = [
            self._item(*pair, verdicts[index * self.runs : (index + 1) * self.runs])
            for index, pair in enumerate(pairs)
        ]
        return items, self._summary(items, {"judge": judge.describe(), "prompt_sha256": sha256_text(prompt)})

    def summarise(self, items: Sequence[Item]) -> Summary:
        """Recompute the summary from items, in any order."""
        return self._summary(self._in_order(items), {})

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
            scorer={
                "rules": self.rules,
                **judge,
                "unparsed": int(counts.get("unparsed", 0)),
                **self._tallies(counts),
            },
            official=self._official(items) if len(items) == len(self.questions) else {},
        )

    @abstractmethod
    def _read_questions(self, folder: Path) -> Mapping[Id, Question]:
        """Read the benchmark's own file."""

    @abstractmethod
    def _record(self, question: Question) -> Record:
        """The record of a question."""

    @abstractmethod
    def _asking(self, judge: Judge) -> tuple[str, Callable[[Question, str, int], Verdict]]:
        """Give the judge's prompt, and a function that asks about one answer in one of the runs."""

    @abstractmethod
    def _item(self, question: Question, answer: str, verdicts: Sequence[Verdict]) -> Item:
        """Turn the verdicts on one answer, one for each run, into an item."""

    @abstractmethod
    def _metrics(self, items: Sequence[Item]) -> dict[str, Metric]:
        """The figures with their intervals."""

    @abstractmethod
    def _tallies(self, counts: Mapping[str, float]) -> dict[str, Any]:
        """What else of the summed counts describes the scoring."""

    @abstractmethod
    def _official(self, items: Sequence[Item]) -> dict[str, float | None]:
        """What the official program prints for the answers to all questions, in order."""
