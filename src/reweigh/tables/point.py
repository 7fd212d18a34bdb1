"""The operating point: the layer and beta to use a model with, and where they come from.

A table's folder may hold the point that tuning chose for its tables; it names the tables by their hashes, so a point
is never used with a table it was not chosen for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, MismatchError
from reweigh.files.artifacts import require_fields
from reweigh.files.seals import read_sealed, write_sealed

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


def read_point(folder: Path) -> TunedPoint | None:
    """Return the point recorded in a folder of tables; ``None`` if there is none, or if tuning found that none helps."""
    page = read_point_page(folder)
    if page is None or page["layer"] is None:
        return None
    chosen_on = page["chosen_on"]
    source = f"tuned on {chosen_on['records']:,} records of {chosen_on['benchmark']}, recorded with the table"
    return TunedPoint(OperatingPoint(page["layer"], page["beta"], source), chosen_on["table_sha256"])


def read_point_page(folder: Path) -> dict[str, Any] | None:
    """Read and verify the whole record of a search; ``None`` if there is none."""
    path = folder / POINT
    if not path.is_file():
        return None
    from reweigh.method.edit import MOST_BETA  # a table without a point needs no torch

    try:
        page = read_sealed(path)
        require_fields(page, path, {"beta": float, "chosen_on": dict, "grid": list})
        chosen_on, layer, beta = page["chosen_on"], page.get("layer"), page["beta"]
        require_fields(chosen_on, path, {"records": int, "benchmark": str, "table_sha256": dict})
    except ArtifactError as error:
        raise ArtifactError(
            error.message,
            hint="remove the file, then run the same `reweigh tune` again: its answers are kept",
        ) from error
    tried = {(point.get("layer"), point.get("beta")) for point in page["grid"] if isinstance(point, Mapping)}
    found = [str(layer)] if layer is not None else []
    if (
        not 0 <= beta <= MOST_BETA
        or chosen_on["records"] < 1
        or not all(isinstance(one, str) for pair in chosen_on["table_sha256"].items() for one in pair)
        or (layer is None and beta != 0)
        or (layer is not None and (type(layer) is not int or layer < 0 or (layer, beta) not in tried))
        or not {*found} <= {*chosen_on["table_sha256"]}
    ):
        raise ArtifactError(
            f"{path} is not an operating point: layer {layer!r}, beta {beta!r} of {len(tried)} points tried",
            hint="tune again, or remove the file",
        )
    return page


def tuned_point(folder: Path, layer: int, fingerprint: str) -> OperatingPoint | None:
    """Return the point recorded in a table's folder or its calibration's, if it is about this very table."""
    for home in (folder, folder.parent) if folder.name.startswith("layer-") else (folder,):
        tuned = read_point(home)
        if tuned is None or tuned.point.layer != layer:
            continue
        if not tuned.fits(fingerprint):
            raise MismatchError(
                f"{home / POINT} was chosen for another table of layer {layer}",
                hint="tune again with `reweigh tune`, or remove the file",
            )
        return tuned.point
    return None


def copy_point(source: Path, out: Path, layer: int, fingerprint: str) -> bool:
    """Copy the point that is recorded for a table into another folder of it; return whether there is one."""
    if tuned_point(source, layer, fingerprint) is None:
        return False
    home = source if (source / POINT).is_file() else source.parent
    write_sealed(out / POINT, read_sealed(home / POINT))
    return True
