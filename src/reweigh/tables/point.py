"""The operating point: the layer and beta to use a model with, and where they come from.

A table's folder may hold the point that tuning chose for its tables; it names the tables by their hashes, so a point
is never used with a table it was not chosen for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, MismatchError
from reweigh.files.artifacts import read_json
from reweigh.files.seals import SEAL, unsealed, write_sealed

POINT = "operating_point.json"


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A layer, a beta and their source in words."""

    layer: int
    beta: float
    source: str

    def __str__(self) -> str:
        return f"layer {self.layer}, beta {self.beta:g} ({self.source})"


@dataclass(frozen=True, slots=True)
class TunedPoint:
    """What tuning recorded beside the tables: a point, and the hash of each table it was chosen among."""

    point: OperatingPoint
    tables: Mapping[str, str]

    def fits(self, fingerprint: str) -> bool:
        """Whether the point was chosen for the table with this hash."""
        return self.tables.get(str(self.point.layer)) == fingerprint


def write_point(folder: Path, page: Mapping[str, Any]) -> None:
    """Record in a folder of tables what tuning chose, sealed: layer, beta, and what they were chosen on."""
    write_sealed(folder / POINT, page)


def read_point(folder: Path) -> TunedPoint | None:
    """The point recorded in a folder of tables; ``None`` if there is none, or if tuning found that none helps."""
    path = folder / POINT
    if not path.is_file():
        return None
    page: Any = read_json(path)
    if isinstance(page, dict) and SEAL in page:  # older versions wrote none
        page = unsealed(page, path)
    try:
        if page["layer"] is None:
            return None
        layer, beta, chosen_on = int(page["layer"]), float(page["beta"]), page["chosen_on"]
        if layer < 0 or not 0 <= beta < math.inf:
            raise ValueError(f"layer {layer}, beta {beta}")
        records, benchmark = int(chosen_on["records"]), str(chosen_on["benchmark"])
        tables = {str(key): str(value) for key, value in chosen_on["table_sha256"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"{path} is not an operating point ({type(error).__name__}: {error})",
            hint="tune again, or take the file away",
        ) from error
    return TunedPoint(
        OperatingPoint(layer, beta, f"tuned on {records:,} records of {benchmark}, recorded with the table"),
        tables,
    )


def tuned_point(folder: Path, layer: int, fingerprint: str) -> OperatingPoint | None:
    """The point recorded in a table's folder or its calibration's, if it is about this very table."""
    for home in (folder, folder.parent) if folder.name.startswith("layer-") else (folder,):
        tuned = read_point(home)
        if tuned is None or tuned.point.layer != layer:
            continue
        if not tuned.fits(fingerprint):
            raise MismatchError(
                f"{home / POINT} was chosen for another table of layer {layer}",
                hint="tune again with `reweigh tune`, or take the file away",
            )
        return tuned.point
    return None


def copy_point(source: Path, out: Path, layer: int, fingerprint: str) -> bool:
    """Copy the point that is recorded for a table into another folder of it; return whether there is one."""
    if tuned_point(source, layer, fingerprint) is None:
        return False
    home = source if (source / POINT).is_file() else source.parent
    page: Any = read_json(home / POINT)
    write_point(out, {key: value for key, value in page.items() if key != SEAL})
    return True
