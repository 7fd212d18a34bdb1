"""One experiment: the same records answered under several arms, scored, and put into one frame.

Each arm has its own sealed run folder, as ``reweigh eval run`` writes it; a stopped experiment resumes and ends with the
same bytes. What is measured or counted per batch (its cost, its edits) is a note, sealed beside the answers. Arms answer
in this process, or ``turns`` does it for them elsewhere. Comparisons, searches and ablations are lists of arms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.seals import read_sealed_rows, require_own_rows
from reweigh.lab.enough import claims
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import AGAINST, Frame, Row
from reweigh.lab.runs.model import make_ask
from reweigh.lab.runs.record import RESPONSES, RESULTS, run_owner
from reweigh.lab.runs.results import Scored, read_scored
from reweigh.lab.runs.run import Answered, Batch, RunFolder, Turns, answer_runs, batches
from reweigh.lab.runs.task import Runs, Task
from reweigh.lab.views.report import FRAME, read_frame
from reweigh.progress import bar
from reweigh.text import Template

if TYPE_CHECKING:
    from reweigh.engines.session import Session

STUDY = "study.json"
"""The sealed page of a finished study."""


@dataclass(frozen=True)
class OpenArm:
    """An arm tied to a model: what a run's record keeps of its decoder, and how it answers a batch."""

    decoding: Mapping[str, Any]
    ask: Callable[[Batch], Answered]


@dataclass(frozen=True)
class Arm:
    """One configuration to answer with.

    Attributes:
        name: The name of its run folder.
        open: Ties it to the model; called when it is about to answer.
        notes: The file for the notes on its batches, if it takes any.
    """

    name: str
    open: Callable[[], OpenArm]
    notes: str | None = None


def session_arm(name: str, attach: Callable[[], Session], *, template: Template | None = None) -> Arm:
    """Make an arm of a decoder tied to a model of this process; ``attach`` is called when it is about to answer.

    Its notes, if they are kept, are the tokens of its answers.
    """

    def opened() -> OpenArm:
        session = attach()
        answer = make_ask(session, template=template)

        def ask(batch: Batch) -> Answered:
            answers = answer(batch)
            return Answered(answers, {"tokens": [list(one.tokens) for one in answers]})

        return OpenArm(session.record(), ask)

    return Arm(name, opened)


def decoder_arm(
    name: str,
    loaded: tuple[Any, Any],
    decoder: str,
    options: Mapping[str, Any],
    *,
    template: Template | None = None,
) -> Arm:
    """Make an arm of a registered decoder with options; ``loaded`` are model and processor."""
    from reweigh import rivals

    return session_arm(name, lambda: rivals.decoder(decoder, *loaded, **options), template=template)


class Experiment:
    """The same records under several arms.

    Args:
        runs: The records, and how they are answered.
        arms: What to answer with.
        out: Folder of the arms' run folders.
        rotate: Answer each batch under all arms in turn, in an order that rotates, so that their times can be compared.
        turns: Answers the batches, if not the arms themselves.
        what: The work in a word or two, for the progress bar.
    """

    def __init__(
        self,
        runs: Runs,
        arms: Sequence[Arm],
        out: Path,
        *,
        rotate: bool = False,
        turns: Turns | None = None,
        what: str = "answering",
    ) -> None:
        self.runs, self.arms, self.out = runs, list(arms), out
        self.rotate, self.turns, self.what = rotate, turns, what
        self.scored: dict[str, Scored] = {}
        self._folders: dict[str, RunFolder] = {}
        self._bar: Any = None

    def run(self, reference: str | None = None) -> Frame:
        """Answer what has no answer yet, score every arm, and return all figures and the differences to one arm."""
        for arm in self.arms:
            self._claim(arm)
        with self.progress(len(self.arms), [arm.name for arm in self.arms]):
            for group in [self.arms] if self.rotate else [[arm] for arm in self.arms]:
                self.answer(*group)
        for arm in self.arms:
            self.score(arm)
        return frame_of(self.scored, self.runs.task, reference)

    @contextmanager
    def progress(self, arms: int, names: Collection[str] | None = None) -> Iterator[None]:
        """Show one bar for the answers of so many arms; without their names, every run in the folder counts as one."""
        there = [path.parent.name for path in self.out.glob(f"*/{RESPONSES}")]
        done = sum(len(self._folder(name).rows) for name in there if names is None or name in names)
        total = arms * len(self.runs.task.records)
        with bar(self.what, total=total, done=done, unit="answer") as self._bar:
            yield
        self._bar = None

    def answer(self, *arms: Arm) -> None:
        """Answer what has no answer yet under some arms, batch by batch in turns."""
        opened = {arm.name: self._open(arm) for arm in arms}
        if len(arms) == 1 and self._bar is not None:
            self._bar.set_description(arms[0].name)
        answer_runs(
            {arm.name: self._folder(arm.name) for arm in arms},
            self.turns or in_turns({name: one.ask for name, one in opened.items()}),
            images=self.runs.task.images,
            batch_size=self.runs.batch_size,
            seed=self.runs.seed,
            notes={arm.name: arm.notes for arm in arms if arm.notes is not None},
            advance=lambda count: None if self._bar is None else self._bar.update(count),
        )

    def score(self, arm: Arm) -> Scored:
        """Score an arm that has answered all records."""
        if arm.name not in self.scored:
            self.scored[arm.name] = self.runs.score(self._folder(arm.name))
        return self.scored[arm.name]

    def texts(self, arm: Arm) -> list[str]:
        """Return what an arm wrote, in the order of the records."""
        return [str(row["response"]) for row in self._folder(arm.name).rows]

    def _folder(self, name: str) -> RunFolder:
        """Return the run folder of an arm; its answers are read once for all who need them."""
        if name not in self._folders:
            self._folders[name] = self.runs.folder(self.out / name)
        return self._folders[name]

    def _claim(self, arm: Arm) -> None:
        """Refuse other files under the names that an arm writes."""
        folder = self.out / arm.name
        self.runs.claim(folder)
        if arm.notes is not None:
            require_own_rows(folder / arm.notes, owner=run_owner(folder))

    def _open(self, arm: Arm) -> OpenArm:
        self._claim(arm)
        opened = arm.open()
        self.runs.open(self.out / arm.name, opened.decoding)
        return opened

    def notes(self, arm: Arm) -> list[dict[str, Any]]:
        """Return the notes on an arm's batches; empty for an arm without notes."""
        return [] if arm.notes is None else read_notes(self.out / arm.name / arm.notes, self.runs)


def in_turns(asks: Mapping[str, Callable[[Batch], Answered]]) -> Turns:
    """Answer with functions of this process."""

    def turns(batch: Batch, names: Sequence[str]) -> Iterator[tuple[str, Answered]]:
        for name in names:
            yield name, asks[name](batch)

    return turns


def read_notes(path: Path, runs: Runs) -> list[dict[str, Any]]:
    """Read the notes of a finished run: the last one on each batch; a batch without a note is refused."""
    rows = {row["start"]: row for row in read_sealed_rows(path, owner=run_owner(path.parent))}
    starts = [start for start, _ in batches(runs.task.records, runs.batch_size)]
    if missing := [start for start in starts if start not in rows]:
        raise ArtifactError(
            f"{path} has no row for {len(missing)} of {len(starts)} batches, the first at record {missing[0]}",
            hint="rows were removed; delete the run folder and run it again",
        )
    return [rows[start] for start in starts]


def frame_of(scored: Mapping[str, Scored], task: Task, reference: str | None = None) -> Frame:
    """Return every figure of every arm and the differences to a reference, the same images drawn for both."""
    rows: list[Row] = []

    def add(arm: str, found: Mapping[str, Estimate], against: str | None) -> None:
        keys = {"benchmark": task.name, "arm": arm}
        rows.extend(
            Row({**keys, "figure": name, AGAINST: against}, estimate) for name, estimate in found.items()
        )

    for name, one in scored.items():
        add(name, one.summary.metrics, None)
    for name, one in scored.items():
        if reference is not None and name != reference:
            add(name, claims(scored[reference].items, one.items, task.bench.figures), reference)
    return Frame(rows)


def read(folder: str | Path) -> Frame:
    """Read the results in a folder as one tidy frame; a file that was altered is refused.

    Args:
        folder: A scored run (``reweigh eval score``), the folder of ``reweigh compare``, ``tune``, ``ablate`` or
            ``speed``, or that of one study below the folder of ``reweigh study``.

    Examples:
        >>> from tempfile import mkdtemp
        >>> from reweigh.lab.estimate import Estimate
        >>> from reweigh.lab.views.report import write_frame
        >>> rows = [Row({"arm": "base", "figure": "chair_i"}, Estimate(17.1, 16.0, 18.2))]
        >>> frame = read(write_frame(Frame(rows), Path(mkdtemp())).parent)
        >>> frame.one(arm="base", figure="chair_i").value
        17.1
    """
    folder = Path(folder)
    if (folder / FRAME).is_file():
        return read_frame(folder)
    if (folder / RESULTS).is_file():
        run = read_scored(folder)
        arm = str(run.results["config"].get("decoding", {}).get("decoder") or folder.resolve().name)
        keys = {"benchmark": run.summary.benchmark, "arm": arm}
        rows = (
            Row({**keys, "figure": name, AGAINST: None}, one) for name, one in run.summary.metrics.items()
        )
        return Frame(rows, run.results["config"])
    if finished := sorted(path.parent.name for path in folder.glob(f"*/{STUDY}")):
        raise InputError(
            f"{folder} has several studies, each with different keys",
            hint=f"give the folder of one: {', '.join(str(folder / name) for name in finished[:3])} ...",
        )
    raise InputError(
        f"{folder} has no finished results",
        hint="give the folder of a scored run or an experiment; run one of an earlier version again, its "
        "answers are kept",
    )
