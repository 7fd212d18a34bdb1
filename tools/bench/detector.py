"""``python -m tools.bench.detector``: how well a check tells objects that are in a picture from objects that are not.

On unseen scenes of the embedded world, three readings of the same evidence are compared: the share of the token's own
reference (what ``reweigh.check`` uses), the strength of the edit, and the percentile among the token's own calibration
observations. Once for every pair of a picture and an object, once for the mentions that the base model makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from reweigh.calibration.result import Calibration
from reweigh.cli import common
from reweigh.families.load import load
from reweigh.families.prompts import build_inputs
from reweigh.lab.views.table import Cell, Column, Table
from reweigh.measuring import measure, tokenize
from reweigh.method.check import THRESHOLD, CheckedWord, check_tokens
from reweigh.rivals import decoder
from reweigh.text import DESCRIBE
from reweigh.world import operating_point, path, table_path
from reweigh.world.drawings import CATALOGUE
from reweigh.world.scenes import Scene, scenes
from reweigh.world.vocabulary import mentions

app = typer.Typer(add_completion=False)

Floats = NDArray[np.float64]

ALARMS = 0.05
"""False-alarm rate at which the readings are compared beside their own thresholds."""


@dataclass(frozen=True)
class Reading:
    """A number read from the evidence of a token; the word is marked below the threshold."""

    name: str
    rule: str
    threshold: float


READINGS = (
    Reading("ratio", f"evidence below {THRESHOLD:g} of the reference", THRESHOLD),
    Reading("strength", "strength of the edit at least 0.5", -0.5 + 1e-9),  # a high strength is a low score
    Reading("percentile", "below the 25th percentile of its observations", 0.25),
)


@dataclass(frozen=True)
class Judged:
    """One object in one picture: whether it is there, and its number by each reading (low: not there)."""

    present: bool
    scores: tuple[float, ...]


@app.command()
def detector(
    count: int = typer.Option(150, "--scenes", min=1, help="Unseen scenes to judge."),
    json: bool = common.JSON,
) -> None:
    """Print AUROC, detection and false-alarm rates of three readings of the evidence on the embedded world."""
    pairs, made = [], []
    for number, (of_pair, of_mention) in enumerate(_judge(list(scenes("evaluation", count))), 1):
        pairs += of_pair
        made += of_mention
        if number % 25 == 0:
            common.note(f"{number} of {count} scenes: {len(pairs)} pairs, {len(made)} mentions")
    rows = [*figures("pairs", pairs), *figures("mentions", made)]
    if json:
        common.emit_json(rows)
    else:
        common.console().print(_table(rows, count))


def _judge(chosen: Sequence[Scene]) -> Iterator[tuple[list[Judged], list[Judged]]]:
    """The judged objects of each scene, and the judged mentions of the base model's description."""
    model, processor = load(path(), device="cpu")
    layer = int(operating_point()["layer"])
    calibration = Calibration.load(table_path())
    table, percentile = calibration.tables[layer], Percentile(calibration, layer)
    base = decoder("base", model, processor)
    for scene in chosen:
        picture = scene.image()
        found = measure(model, build_inputs(model, processor, [picture], [DESCRIBE]), layers=[layer])[0]
        assert found is not None  # every scene is a picture
        evidence = found.at(layer)

        def words(text: str, evidence: Any = evidence) -> list[CheckedWord]:
            return check_tokens(text, *tokenize(processor, text), evidence, table).words()

        def judged(word: CheckedWord, name: str, scene: Scene = scene) -> Iterator[Judged]:
            if word.ratio is not None:
                assert word.judge.strength is not None
                scores = (word.ratio, -word.judge.strength, percentile(word))
                yield Judged(name in scene.objects, scores)

        pairs = [one for name in CATALOGUE for one in judged(words(f"a {name}")[1], name)]
        said = base.describe(picture)
        starting = {word.start: word for word in words(said)}
        made = [
            one
            for start, _, _, name in mentions(said)
            if start in starting
            for one in judged(starting[start], name)
        ]
        yield pairs, made


class Percentile:
    """Where evidence lies among a token's own calibration observations: the share below it, ties counting half."""

    def __init__(self, calibration: Calibration, layer: int) -> None:
        seen = calibration.observations
        values = seen.values[seen.layers.index(layer)]
        order = np.argsort(seen.token, kind="stable")
        token, count = seen.token[order], seen.count[order]
        self._values = {
            int(one): np.sort(np.repeat(values[order][token == one], count[token == one]))
            for one in np.unique(token)
        }

    def __call__(self, word: CheckedWord) -> float:
        known, value = self._values[word.judge.token], np.float32(word.judge.evidence)
        return float((known < value).mean() + (known == value).mean() / 2)


def figures(kind: str, judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """AUROC, detection and false alarms of each reading."""
    present = np.array([one.present for one in judged], bool)
    rows = []
    for place, reading in enumerate(READINGS):
        score = np.array([one.scores[place] for one in judged], float)
        there, absent = score[present], score[~present]
        rows.append(
            {
                "on": kind,
                "reading": reading.name,
                "rule": reading.rule,
                "present": len(there),
                "absent": len(absent),
                "auroc": area(absent, there),
                "detected": share(absent < reading.threshold),
                "false_alarms": share(there < reading.threshold),
                "detected_at_5": share(absent < np.quantile(there, ALARMS)) if len(there) else None,
            }
        )
    return rows


def area(low: Floats, high: Floats) -> float | None:
    """The chance that a score of ``low`` is below one of ``high``, ties counting half."""
    if not len(low) or not len(high):
        return None
    ordered = np.sort(high)
    above = len(high) - np.searchsorted(ordered, low, "right")
    equal = len(high) - np.searchsorted(ordered, low, "left") - above
    return float(((above + equal / 2) / len(high)).mean())


def share(marked: NDArray[np.bool_]) -> float | None:
    """Percent."""
    return 100 * float(marked.mean()) if len(marked) else None


def _table(rows: Sequence[dict[str, Any]], count: int) -> Table:
    columns = [
        Column("on"),
        Column("a word is marked with"),
        Column("present", digits=0),
        Column("absent", digits=0),
    ]
    columns += [
        Column("AUROC", digits=3),
        Column("detected, %", digits=1),
        Column("false alarms, %", digits=1),
    ]
    columns += [Column("detected at 5% false alarms, %", digits=1)]
    keys = ("on", "rule", "present", "absent", "auroc", "detected", "false_alarms", "detected_at_5")
    cells: list[list[Cell]] = [[row[key] for key in keys] for row in rows]
    return Table(columns, cells, f"{count} unseen scenes of the embedded world; registered tokens only.")


if __name__ == "__main__":
    app()
