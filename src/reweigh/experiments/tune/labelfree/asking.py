"""Questions to a verifier, each asked once: verdicts are sealed as they come, and a stopped search goes on from them.

``verifier.json`` says who answers about which pictures; every verdict in ``verdicts.jsonl`` is sealed with the hash of that
page, so that one that was edited, or belongs to another verifier, is refused and never counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, MismatchError, NumericsError
from reweigh.experiments.tune.labelfree.verifier import Verifier
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
                    "{} tells of another {}: {} there, {} now".format(page, found.key, *found.words),
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
                    f"the verifier answers {gap} when asked for {name!r} in {image}",
                    hint="a number that is none decides nothing: load the verifier in another dtype, or take another",
                )
        rows = ({"record": number, "object": name, "gap": gap} for name, gap in found.items())
        append_sealed_rows(self.path, rows, owner=self._owner)
        self.gaps[number] |= found
