"""Studies that an earlier version finished: their ``table.json`` as a frame.

Their differences had " minus " and a reference in the quantity, a grid had one column per figure, and cases had a score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reweigh.estimate import Estimate
from reweigh.files.artifacts import read_json, sha256_file
from reweigh.files.seals import altered
from reweigh.paper.study import Outcome, Study, row
from reweigh.results.frame import AGAINST, Frame, Row

SCHEMA = 1
TABLE = "table.json"
GRID = ("chair_s", "chair_i", "recall", "f1")


def read_earlier(folder: Path, study: type[Study], files: Mapping[str, str]) -> Outcome:
    """A finished study of schema 1; its table must have the hash that its page names."""
    if sha256_file(folder / TABLE) != files[TABLE]:
        raise altered(folder / TABLE)
    kept = read_json(folder / TABLE)
    rows = [new for old in kept["rows"] for new in _rows(study, old)]
    return Outcome(study, Frame(rows), tuple(kept["sentences"]), kept["unmet"])


def _rows(study: type[Study], old: Mapping[str, Any]) -> Iterator[Row]:
    keys = {name: old.get(name) for name, _ in study.keys}
    if study.name == "grid":
        for figure in GRID:
            yield row(old[figure], **{**keys, "quantity": figure})
    elif study.name == "cases":
        yield row(old["score"], **keys)
    else:
        if AGAINST in keys:
            quantity, _, against = str(old["quantity"]).partition(" minus ")
            keys |= {"quantity": quantity, AGAINST: against or None}
        yield row(Estimate(old["value"], old["low"], old["high"]), **keys)
