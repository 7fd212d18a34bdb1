"""The search of an operating point on pictures without labels: answer, pool, ask, judge, choose.

The same grid, midpoint and rule as with labels; only the figures come from a verifier. Every answer and every verdict
is kept, so that a stopped search goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reweigh.artifacts import append_jsonl, read_json, read_jsonl, sha256_json, write_json
from reweigh.errors import InputError, MismatchError
from reweigh.images import read_image
from reweigh.progress import bar
from reweigh.runs.record import RESPONSES, find_image, run_owner
from reweigh.runs.task import Task
from reweigh.seals import read_sealed_rows
from reweigh.studies.tune.labelfree.figures import (
    Mentions,
    Trust,
    known_absents,
    pools,
    pseudo_quality,
    trust,
)
from reweigh.studies.tune.labelfree.verifier import Verifier
from reweigh.studies.tune.search import BETAS, BOUND, Found, Point, Quality, choose, judge, midpoint
from reweigh.studies.tune.study import Answer

BASE = (None, 0.0)
"""The base model among the points (layer, beta)."""

VERDICTS = "verdicts.jsonl"
Points = dict[tuple[int | None, float], Mentions]
Lexicon = Callable[[str], Sequence[str]]
"""The objects that a text mentions, repeats kept."""


@dataclass(frozen=True)
class LabelFree:
    """What a search without labels found.

    Attributes:
        found: The points with their pseudo figures, and the choice, which a refusal takes away.
        trust: What the answers say about the verifier.
        asked: How many questions were put to it.
    """

    found: Found
    trust: Trust
    asked: int

    def in_words(self) -> str:
        """How far the verifier can be believed, for a person."""
        shown = {"J": self.trust.j, "h": self.trust.h, "f": self.trust.f}
        figures = ", ".join(
            f"{name} {'-' if value is None else f'{value:.2f}'}" for name, value in shown.items()
        )
        lines = [
            f"verifier: {self.asked:,} questions; {figures}; it denies {self.trust.denied} mentions of the base",
            *(f"note: {warning}" for warning in self.trust.warnings()),
        ]
        if (why := self.trust.refusal()) is not None:
            lines.append(f"refused: {why}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The verifier's part of the result."""
        return {
            **asdict(self.trust),
            "j": self.trust.j,
            "asked": self.asked,
            "refused": self.trust.refusal(),
            "warnings": self.trust.warnings(),
        }


def tune_without_labels(
    answer: Answer,
    task: Task,
    verifier: Verifier,
    lexicon: Lexicon,
    out: Path,
    *,
    layers: Sequence[int],
    betas: Sequence[float] = BETAS,
    bound: float = BOUND,
) -> LabelFree:
    """Answer the grid, let the verifier judge every mentioned object, then the midpoint, and choose.

    Args:
        answer: Answers all records at one point into a folder.
        task: The pictures.
        verifier: Who affirms or denies.
        lexicon: Finds the objects a text mentions.
        out: Folder for the verdicts.
    """
    asking = _Asking(verifier, task, out)
    points: Points = {BASE: _mentions(answer(*BASE), lexicon)}
    for layer in layers:
        for beta in betas:
            points[layer, beta] = _mentions(answer(layer, beta), lexicon)
    base, judged = _judge(points, asking, bound)
    middle = midpoint(judged)
    if middle is not None and middle not in betas:
        for layer in layers:
            points[layer, middle] = _mentions(answer(layer, middle), lexicon)
        base, judged = _judge(points, asking, bound)
    absents = known_absents(pools(points))
    asking.ask([set(names) for names in absents])
    believed = trust(points, BASE, absents, asking.affirmed)
    judged.sort(key=lambda point: (point.layer, point.beta))
    chosen = None if believed.refusal() else choose(judged)
    return LabelFree(Found(base, tuple(judged), chosen), believed, asking.count)


def _judge(points: Points, asking: _Asking, bound: float) -> tuple[Quality, list[Point]]:
    pool = pools(points)
    asking.ask(pool)
    quality = {key: pseudo_quality(mentions, pool, asking.affirmed) for key, mentions in points.items()}
    base = quality.pop(BASE)
    if base.f1 is None:
        raise InputError(
            "the base's descriptions mention no object that the verifier affirms",
            hint="take pictures of objects the lexicon knows, or another verifier",
        )
    return base, [
        judge(layer, beta, one, base, bound) for (layer, beta), one in quality.items() if layer is not None
    ]


def _mentions(folder: Path, lexicon: Lexicon) -> Mentions:
    rows = read_sealed_rows(folder / RESPONSES, owner=run_owner(folder))
    return [Counter(lexicon(str(row["response"]))) for row in rows]


class _Asking:
    """Asks each question once, and keeps the verdicts in a file that a stopped search goes on from."""

    def __init__(self, verifier: Verifier, task: Task, out: Path) -> None:
        self.verifier = verifier
        self.task = task
        self.affirmed: list[dict[str, bool]] = [{} for _ in task.records]
        self.path = out / VERDICTS
        self._open(out / "verifier.json")

    def _open(self, page: Path) -> None:
        about = {"verifier": self.verifier.describe(), "records": len(self.task.records)}
        about["manifest_sha256"] = sha256_json([record.image for record in self.task.records])
        if page.exists():
            if read_json(page) != about:
                raise MismatchError(
                    f"{page} tells of another verifier or other pictures", hint="choose another folder"
                )
        else:
            write_json(page, about)
        for row in read_jsonl(self.path) if self.path.exists() else []:
            self.affirmed[row["record"]][row["object"]] = row["gap"] > 0

    @property
    def count(self) -> int:
        """Questions asked so far."""
        return sum(map(len, self.affirmed))

    def ask(self, wanted: Sequence[set[str]]) -> None:
        """Ask about the objects of each image that have no verdict yet."""
        missing = [sorted(names - known.keys()) for names, known in zip(wanted, self.affirmed, strict=True)]
        total = sum(map(len, missing))
        if not total:
            return
        with bar("verifying", total=total, unit="question") as progress:
            for number, names in enumerate(missing):
                if not names:
                    continue
                picture = read_image(find_image(self.task.images, self.task.records[number].image))
                gaps = self.verifier.ask(picture, names)
                found = dict(zip(names, gaps, strict=True))
                append_jsonl(
                    self.path, ({"record": number, "object": name, "gap": gap} for name, gap in found.items())
                )
                self.affirmed[number] |= {name: gap > 0 for name, gap in found.items()}
                progress.update(len(names))
