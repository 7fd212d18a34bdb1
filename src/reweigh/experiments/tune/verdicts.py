"""A verifier's answers, CHAIR's counts with them in place of labels, and whether the verifier can be trusted.

``verifier.json`` says who answers about which pictures. Every verdict in ``verdicts.jsonl`` is sealed with the hash of that
page as soon as it is given, so a stopped search resumes, and a verdict that was edited or belongs to another verifier is
refused. For image i and point p, C[p, i, x] counts the mentions of object x; the pool U_i has every object that any point
mentions; A[i, x] is 1 where the verifier affirms x. A denied mention counts as hallucinated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Item, Record
from reweigh.benchmarks.chair.metrics import count_caption
from reweigh.errors import ArtifactError, MismatchError, NumericsError
from reweigh.experiments.tune.search import BASE, Where
from reweigh.experiments.tune.verifier import Verifier
from reweigh.files.artifacts import sha256_json
from reweigh.files.seals import append_sealed_rows, read_sealed, read_sealed_rows, write_sealed
from reweigh.images import read_image
from reweigh.progress import bar
from reweigh.provenance import first_difference
from reweigh.runs.record import find_image
from reweigh.runs.task import Task

PAGE, VERDICTS = "verifier.json", "verdicts.jsonl"


class Asking:
    """Asks a verifier about the pictures of a task.

    Attributes:
        gaps: For each picture, how strongly each object asked about is affirmed; above 0 is yes.
    """

    def __init__(self, verifier: Verifier, task: Task, out: Path) -> None:
        self.verifier = verifier
        self.task = task
        self.path = out / VERDICTS
        self.gaps: list[dict[str, float]] = [{} for _ in task.records]
        about = {
            "verifier": verifier.describe(),
            "records": len(task.records),
            "manifest_sha256": sha256_json([record.image for record in task.records]),
        }
        self._owner = sha256_json(about)
        try:
            self._open(out / PAGE, about)
        except ArtifactError as error:
            raise ArtifactError(
                error.message, hint=f"delete {out / PAGE} and {self.path}: the questions are then asked again"
            ) from error

    @property
    def affirmed(self) -> list[dict[str, bool]]:
        """Yes or no to each question asked so far."""
        return [{name: gap > 0 for name, gap in one.items()} for one in self.gaps]

    def ask(self, wanted: Sequence[set[str]]) -> None:
        """Ask about the objects of each picture that have no verdict yet."""
        missing = [sorted(names - known.keys()) for names, known in zip(wanted, self.gaps, strict=True)]
        total = sum(map(len, missing))
        if not total:
            return
        with bar("verifying", total=total, unit="question") as progress:
            for number, names in enumerate(missing):
                if names:
                    self._ask(number, names)
                    progress.update(len(names))

    def _open(self, page: Path, about: dict[str, Any]) -> None:
        if page.exists():
            if (found := first_difference(read_sealed(page), about)) is not None:
                raise MismatchError(
                    "{} has another {}: {} there, {} now".format(page, found.key, *found.words),
                    hint="choose another folder",
                )
        else:
            write_sealed(page, about)
        for row in read_sealed_rows(self.path, owner=self._owner) if self.path.exists() else []:
            self.gaps[row["record"]][row["object"]] = row["gap"]

    def _ask(self, number: int, names: Sequence[str]) -> None:
        image = self.task.records[number].image
        gaps = self.verifier.ask(read_image(find_image(self.task.images, image)), names)
        found = dict(zip(names, gaps, strict=True))
        for name, gap in found.items():
            if not math.isfinite(gap):
                raise NumericsError(
                    f"the verifier answers {gap} when asked about {name!r} in {image}",
                    hint="load the verifier in another dtype, or use another verifier",
                )
        rows = ({"record": number, "object": name, "gap": gap} for name, gap in found.items())
        append_sealed_rows(self.path, rows, owner=self._owner)
        self.gaps[number] |= found


NEIGHBORS = 8
ABSENT = 4

Mentions = Sequence[Counter[str]]
"""How often each image's description mentions each object."""

Affirmed = Sequence[Mapping[str, bool]]
"""For each image, whether the verifier affirms each object it was asked about."""


def pools(points: Mapping[Any, Mentions]) -> list[set[str]]:
    """Return U_i, the objects that any point mentions."""
    counts = list(points.values())
    return [set().union(*(one[image] for one in counts)) for image in range(len(counts[0]))]


def pseudo_items(
    records: Sequence[Record], mentions: Mentions, pool: Sequence[set[str]], affirmed: Affirmed
) -> list[Item]:
    """Count one point as CHAIR does, taking the affirmed objects of the pool for those that are there.

    CHAIR_I = sum C (1 - A) / sum C; recall = sum [C > 0] A / sum over U of A; F1 is their harmonic mean.
    """
    return [
        Item(
            id=record.id,
            image=record.image,
            counts=count_caption(list(counts.elements()), {name for name in objects if yes[name]}, words=0),
        )
        for record, counts, objects, yes in zip(records, mentions, pool, affirmed, strict=True)
    ]


def known_absents(pool: Sequence[set[str]]) -> list[list[str]]:
    """Return up to four objects an image most likely lacks: similar images mention them, and no point does here.

    Similar images share most of their pools (Jaccard); the objects most of the eight nearest name come first.
    """
    found = []
    for image, own in enumerate(pool):
        others = sorted((-_jaccard(own, names), other) for other, names in enumerate(pool) if other != image)
        near = (pool[other] for _, other in others[:NEIGHBORS])
        counts = Counter(name for names in near for name in names - own)
        found.append([name for _, name in sorted((-count, name) for name, count in counts.items())[:ABSENT]])
    return found


def _jaccard(first: set[str], second: set[str]) -> float:
    both = len(first | second)
    return len(first & second) / both if both else 0.0


LEAST_DENIED = 30
LEAST_J = 0.5
MOST_F = 0.4
LEAST_D0 = 8.0
ALWAYS = (
    "a model tends to confirm its own hallucinations, which makes the choice too cautious and is not detected here; "
    "use another model as verifier (--verifier) to avoid it"
)


@dataclass(frozen=True, slots=True)
class Trust:
    """What the answers say about the verifier itself.

    Attributes:
        h: Share of yes to objects that every point names.
        f: Share of yes to known absents.
        d0: The base's CHAIR_I by the verifier, in percent.
        denied: Mentions of the base that the verifier denies.
        asked: How many questions were put to it.
        who: Who answered.
    """

    h: float | None
    f: float | None
    d0: float | None
    denied: int
    asked: int = 0
    who: Mapping[str, Any] = field(default_factory=dict)

    @property
    def j(self) -> float | None:
        """J = h - f: how well the verifier distinguishes present from absent objects."""
        return None if self.h is None or self.f is None else self.h - self.f

    def refusal(self) -> str | None:
        """Return why no point may be chosen by these answers, if so."""
        if self.j is None:
            return "no object is named by every point, or there was no known absent to ask about"
        if self.j < LEAST_J:
            return f"the verifier hardly distinguishes present from absent objects (J {self.j:.2f}, at least {LEAST_J:g})"
        if self.denied < LEAST_DENIED:
            return (
                f"it denies only {self.denied} mentions of the base (at least {LEAST_DENIED} are needed): "
                "use more pictures, unless the model hallucinates too little for any choice"
            )
        return None

    def warnings(self) -> list[str]:
        """Return what a reader must know before using the choice."""
        said = []
        if self.f is not None and self.f > MOST_F:
            said.append(f"the verifier affirms {self.f:.0%} of known absents: it is biased toward yes")
        if self.d0 is not None and self.d0 < LEAST_D0:
            said.append(
                f"the verifier denies only {self.d0:.1f}% of the base's mentions: the model hallucinates little, "
                "or the verifier confirms its hallucinations"
            )
        return [*said, ALWAYS]

    def in_words(self) -> list[str]:
        """Return how far the verifier can be trusted, for a reader."""
        h, f = ("-" if share is None else f"{share:.0%}" for share in (self.h, self.f))
        refused = [] if (why := self.refusal()) is None else [f"refused: {why}"]
        return [
            f"verifier: {self.asked:,} questions; it affirms {h} of what every point names (h) and {f} of known absents "
            f"(f), so J = h - f is {'-' if self.j is None else f'{self.j:.2f}'}; it denies {self.denied} mentions of the "
            "base",
            *(f"note: {warning}" for warning in self.warnings()),
            *refused,
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the verifier's part of the result."""
        return {**asdict(self), "j": self.j, "refused": self.refusal(), "warnings": self.warnings()}


def trust(
    points: Mapping[Where, Mentions],
    absents: Sequence[Sequence[str]],
    affirmed: Affirmed,
    who: Mapping[str, Any] | None = None,
) -> Trust:
    """Judge a verifier by what it affirms of the objects that all points name, and of known absents."""

    def share(answers: Sequence[bool]) -> float | None:
        return sum(answers) / len(answers) if answers else None

    named = [
        yes[name]
        for yes, *said in zip(affirmed, *points.values(), strict=True)
        for name in set.intersection(*map(set, said))
    ]
    asked = [yes[name] for yes, names in zip(affirmed, absents, strict=True) for name in names]
    base = [
        (count, yes[name])
        for yes, counts in zip(affirmed, points[BASE], strict=True)
        for name, count in counts.items()
    ]
    said, denied = sum(count for count, _ in base), sum(count for count, yes in base if not yes)
    d0 = 100 * denied / said if said else None
    return Trust(share(named), share(asked), d0, denied, sum(map(len, affirmed)), who or {})
