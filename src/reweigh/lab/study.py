"""A study: tasks answered under several arms, scored, and put into one frame.

    study = Study([runs], [base, reweigh], out, reference="base")
    frame = study.run((model, processor))             # answers what is missing, scores, compares with the reference

Every arm of a task is a ``Job`` in ``OUT/TASK/ARM``: its parts are batches, cut at fixed positions, so that a run that was
stopped anywhere and resumed has the same answers. A folder that is finished is read, whichever study asked for it first.
What observers of an arm measure (its cost, its edits, its tokens) is the note on a batch. Evaluation, comparison, tuning
and ablation are lists of arms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from reweigh.cluster import by_number
from reweigh.engines.answer import Answer
from reweigh.errors import InputError, ReweighError
from reweigh.files.artifacts import sha256_text
from reweigh.images import read_image
from reweigh.job import Job
from reweigh.lab.enough import claims
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import AGAINST, Frame, Row
from reweigh.lab.runs.record import claim_scores, find_image
from reweigh.lab.runs.score import run_source, score_into
from reweigh.lab.tasks.base import Record
from reweigh.progress import bar
from reweigh.text import Template, replace_surrogates

if TYPE_CHECKING:
    from PIL.Image import Image

    from reweigh.lab.runs.results import Scored
    from reweigh.lab.runs.task import Runs

Model: TypeAlias = "tuple[Any, Any] | None"
"""A model and its processor; None if others answer."""


@dataclass(frozen=True)
class Batch:
    """Records that are asked together.

    Attributes:
        start: Position of the first one.
        records: What is asked; all have the same limit of new tokens.
        pictures: Their pictures.
        seed: Seed of whatever is sampled.
    """

    start: int
    records: Sequence[Record]
    pictures: list[Image]
    seed: int

    @property
    def prompts(self) -> list[str]:
        """Their prompts."""
        return [record.prompt for record in self.records]

    @property
    def max_new_tokens(self) -> int:
        """Their limit."""
        return self.records[0].max_new_tokens


@dataclass(frozen=True)
class Answered:
    """The answers to a batch, and what was noted about it."""

    answers: list[Answer]
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Call:
    """A batch that a session is about to answer, and its answers afterwards."""

    session: Any
    batch: Batch
    inputs: Mapping[str, Any]
    respond: Callable[..., list[Answer]]
    template: Template | None = None
    answers: list[Answer] = field(default_factory=list)


class Observer:
    """Watches a session answer; what it notes is kept beside the answers. One per arm: it may keep state."""

    def settings(self, call: Call) -> Mapping[str, Any]:
        """Return settings of the session while it answers."""
        return {}

    def watching(self, call: Call) -> AbstractContextManager[Any]:
        """Return a context around the answering."""
        return nullcontext()

    def note(self, call: Call) -> Mapping[str, Any]:
        """Return what is kept about the batch, as plain JSON."""
        return {}


class Tokens(Observer):
    """Notes the tokens of the answers: tokenizing a text again may split it differently."""

    def note(self, call: Call) -> Mapping[str, Any]:
        return {"tokens": [list(one.tokens) for one in call.answers]}


@dataclass(frozen=True)
class Opened:
    """An arm tied to a model: what the record keeps of its decoder, and how it answers a batch."""

    record: Mapping[str, Any]
    ask: Callable[[Batch], Answered]


@dataclass(frozen=True)
class Arm:
    """One way of answering.

    Attributes:
        name: The name of its folders, and its key in the frame.
        open: Ties it to the model: a session, or something else that answers; called when it is about to answer.
        title: What people read.
        observers: Who watches it answer.
        settings: Settings of the session for a batch, such as evidence that was measured before.
    """

    name: str
    open: Callable[[Any], Any]
    title: str = ""
    observers: Sequence[Observer] = ()
    settings: Callable[[Any, Batch], Mapping[str, Any]] | None = None

    def opened(self, model: Model, template: Template | None = None) -> Opened:
        """Tie the arm to a model."""
        session = self.open(model)
        if isinstance(session, Opened):
            return session
        return Opened(session.record(), partial(self._ask, session, template))

    def _ask(self, session: Any, template: Template | None, batch: Batch) -> Answered:
        """Answer a batch in the regime of the decoder's authors, watched by the observers."""
        inputs = session.prepare(batch.pictures, batch.prompts, template=template)
        options = {**session.decoder.decoding(), "max_new_tokens": batch.max_new_tokens}
        call = Call(session, batch, inputs, partial(session.respond, seed=batch.seed, **options), template)
        settings = dict(self.settings(session, batch)) if self.settings is not None else {}
        for observer in self.observers:
            settings |= observer.settings(call)
        with ExitStack() as around:
            if settings:
                around.enter_context(session.using(**settings))
            for observer in self.observers:
                around.enter_context(observer.watching(call))
            call.answers = call.respond(inputs)
        note: dict[str, Any] = {}
        for observer in self.observers:
            note |= observer.note(call)
        return Answered(call.answers, note)


def decoder_arm(
    name: str,
    decoder: str,
    options: Mapping[str, Any] | None = None,
    *,
    title: str = "",
    observers: Sequence[Observer] = (),
) -> Arm:
    """Make an arm of a registered decoder with options."""

    def opened(model: tuple[Any, Any]) -> Any:
        from reweigh import rivals

        return rivals.decoder(decoder, *model, **(options or {}))

    return Arm(name, opened, title, observers)


class Workers(Protocol):
    """Those who answer elsewhere: each task is a batch and the names of the arms that lack it."""

    def unordered(self, tasks: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """Do numbered tasks, and yield the results as they come."""
        ...


class Study:
    """Tasks answered under several arms.

    Args:
        tasks: What is asked, and how.
        arms: With what it is answered; names are unique.
        out: Folder of the runs.
        reference: The arm that the others are compared with; None for no comparison.
        interleave: Answer each batch under all arms in turn, in an order that rotates, so that times can be compared.
        flat: Keep the only run of the study in ``out`` itself.
        shard: The part of the batches to answer, as ``i/n``.
        workers: Who answers, if not the arms in this process.
        what: The work in a word or two, for the progress bar.
    """

    def __init__(
        self,
        tasks: Sequence[Runs],
        arms: Sequence[Arm],
        out: Path,
        *,
        reference: str | None = "base",
        interleave: bool = False,
        flat: bool = False,
        shard: str = "1/1",
        workers: Workers | None = None,
        what: str = "answering",
    ) -> None:
        self.tasks, self.arms, self.out = list(tasks), list(arms), out
        self.reference, self.interleave, self.flat = reference, interleave, flat
        self.shard, self.workers, self.what = shard, workers, what
        self.scored: dict[str, dict[str, Scored]] = {runs.task.name: {} for runs in self.tasks}
        self.answered = 0
        """Answers that this study added."""
        self._notes: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        self._bar: Any = None

    def run(self, model: Model = None) -> Frame:
        """Answer what is missing, score every arm, and return all figures and the differences to the reference."""
        self.claim()
        with self.progress(len(self.arms)):
            for runs in self.tasks:
                for group in [self.arms] if self.interleave else [[arm] for arm in self.arms]:
                    self.answer(runs, group, model)
        for runs in self.tasks:
            for arm in self.arms:
                self.score(runs, arm)
        return self.frame()

    def folder(self, runs: Runs, arm: Arm) -> Path:
        """Return the folder of a run."""
        return self.out if self.flat else self.out / runs.task.name / arm.name

    def claim(self) -> None:
        """Refuse folders in which other files have the names of a run or its scores, before any work."""
        for runs in self.tasks:
            for arm in self.arms:
                Job.claim(self.folder(runs, arm))
                claim_scores(self.folder(runs, arm))

    @contextmanager
    def progress(self, arms: int) -> Iterator[None]:
        """Show one bar for the answers of so many arms."""
        total = arms * sum(len(runs.task.records) for runs in self.tasks)
        with bar(self.what, total=total, unit="answer") as self._bar:
            yield
        self._bar = None

    def answer(self, runs: Runs, arms: Sequence[Arm], model: Model = None) -> None:
        """Answer what has no answer yet under some arms, batch by batch."""
        cut = list(batches(runs.task.records, runs.batch_size))
        opened = {arm.name: arm.opened(model, runs.template) for arm in arms}
        with ExitStack() as held:
            jobs = {}
            for arm in arms:
                record = runs.record(opened[arm.name].record)
                job = Job.open(self.folder(runs, arm), record, parts=len(cut))
                jobs[arm.name] = held.enter_context(job)
            left = {name: set(job.pending(self.shard)) for name, job in jobs.items()}
            self._advance(sum(len(job.rows()) for job in jobs.values()), arms)
            due = [
                (part, _rotated([name for name in left if part in left[name]], part))
                for part in range(len(cut))
            ]
            due = [(part, names) for part, names in due if names]
            for part, name, answered in self._answers(runs, cut, due, opened):
                rows = _rows(cut[part][1], answered.answers)
                jobs[name].append(part, rows, note=answered.note)
                self.answered += len(rows)
                self._advance(len(rows), arms)
            for name, job in jobs.items():
                self._notes[runs.task.name, name] = job.notes()

    def _answers(
        self,
        runs: Runs,
        cut: Sequence[tuple[int, list[Record]]],
        due: Sequence[tuple[int, list[str]]],
        opened: Mapping[str, Opened],
    ) -> Iterator[tuple[int, str, Answered]]:
        """Yield every missing part of every arm with its answers, from here or from the workers."""

        def tasks() -> Iterator[tuple[int, tuple[Batch, list[str]]]]:
            for part, names in due:
                yield part, (open_batch(*cut[part], runs.task.images, runs.seed), names)

        if self.workers is None:
            for part, (batch, names) in tasks():
                for name in names:
                    yield part, name, opened[name].ask(batch)
            return
        take = by_number(self.workers.unordered(tasks()))
        for part, _ in due:
            for name, answered in take(part).items():
                yield part, name, answered

    def _advance(self, count: int, arms: Sequence[Arm]) -> None:
        if self._bar is not None:
            if len(arms) == 1:
                self._bar.set_description(arms[0].name)
            self._bar.update(count)

    def score(self, runs: Runs, arm: Arm) -> Scored:
        """Score an arm that has answered all records of a task."""
        found = self.scored[runs.task.name]
        if arm.name not in found:
            folder = self.folder(runs, arm)
            found[arm.name] = score_into(folder, runs.task.bench, run_source(folder).part())
        return found[arm.name]

    def notes(self, runs: Runs, arm: Arm) -> list[dict[str, Any]]:
        """Return the notes on an arm's batches, in their order."""
        known = self._notes[runs.task.name, arm.name]
        return [known[part] for part in sorted(known)]

    def frame(self) -> Frame:
        """Return every figure that was scored, and the differences to the reference."""
        rows = [
            row
            for runs in self.tasks
            for row in figure_rows(runs, self.scored[runs.task.name], self.reference)
        ]
        return Frame(rows)


def figure_rows(runs: Runs, scored: Mapping[str, Scored], reference: str | None = None) -> Iterator[Row]:
    """Yield every figure of every arm of a task, and the differences to a reference, the same images drawn for both."""

    def rows(arm: str, found: Mapping[str, Estimate], against: str | None) -> Iterator[Row]:
        keys = {"benchmark": runs.task.name, "arm": arm}
        for name, estimate in found.items():
            yield Row({**keys, "figure": name, AGAINST: against}, estimate)

    for name, one in scored.items():
        yield from rows(name, one.summary.metrics, None)
    for name, one in scored.items():
        if reference in scored and name != reference:
            base = scored[str(reference)].items
            yield from rows(name, claims(base, one.items, runs.task.bench.figures), reference)


def batches(records: Sequence[Record], size: int) -> Iterator[tuple[int, list[Record]]]:
    """Yield batches of records with the same limit, each with the position of its first record."""
    if size < 1:
        raise InputError(f"batch size {size} is not a positive number")
    start = 0
    for _, group in groupby(records, key=lambda record: record.max_new_tokens):
        same = list(group)
        for offset in range(0, len(same), size):
            part = same[offset : offset + size]
            yield start, part
            start += len(part)


def batch_seed(seed: int, start: int) -> int:
    """Return the seed of the batch at a position, so that a resumed run samples what an unbroken one would have."""
    return int(sha256_text(f"{seed}/{start}")[:8], 16)


def open_batch(start: int, records: Sequence[Record], images: Path, seed: int) -> Batch:
    """Read the pictures of some records."""
    pictures = [read_image(find_image(images, record.image)) for record in records]
    return Batch(start, records, pictures, batch_seed(seed, start))


def _rotated(names: list[str], part: int) -> list[str]:
    first = part % len(names) if names else 0
    return names[first:] + names[:first]


def _rows(records: Sequence[Record], answers: Any) -> list[dict[str, Any]]:
    """Return the rows of a batch: what was asked, and the answer."""
    whole = isinstance(answers, list) and len(answers) == len(records)
    if not whole or not all(isinstance(one, Answer) and isinstance(one.text, str) for one in answers):
        raise ReweighError(
            f"the model gave {answers!r:.200} for {len(records)} prompts; expected as many answers"
        )
    return [
        {
            "id": one.id,
            "image": one.image,
            "prompt": one.prompt,
            "max_new_tokens": one.max_new_tokens,
            "response": replace_surrogates(answer.text),
        }
        for one, answer in zip(records, answers, strict=True)
    ]
