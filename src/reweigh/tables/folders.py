"""Where reference tables lie: a folder with one table, or a calibration's folder with one for each layer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import require_fields
from reweigh.files.seals import read_sealed
from reweigh.tables.point import POINT, read_point

SCHEMA = 2
READABLE = (1, SCHEMA)
"""Pages of schema 1 lack a sample of every weight: they can be read and forced, not verified."""

PAGE = "reference_table.json"
NUMBERS = "reference_table.safetensors"

FIELDS = {"layer": int, "b0": float, "made_with": dict, "numbers_sha256": str}
"""What every page holds."""


def find_table(folder: Path, layer: int | None, default: int | None = None) -> Path:
    """The folder of one table: itself, or the right ``layer-N`` below a calibration folder."""
    if (folder / PAGE).is_file():
        return folder
    below = sorted(path.parent for path in folder.glob(f"layer-*/{PAGE}"))
    if layer is None and len(below) > 1:
        tuned = read_point(folder)
        wanted = default if tuned is None else tuned.point.layer
        layer = wanted if folder / f"layer-{wanted}" in below else None
    chosen = [path for path in below if layer is None or path.name == f"layer-{layer}"]
    if len(chosen) == 1:
        return chosen[0]
    if not below:
        raise ArtifactError(
            f"{folder} holds no reference table ({PAGE})", hint="make one with `reweigh calibrate`"
        )
    names = ", ".join(path.name.removeprefix("layer-") for path in below)
    if layer is None:
        raise InputError(
            f"{folder} holds tables of several layers: {names}, and no tuned point",
            hint="say which with layer= (--layer), or let `reweigh tune` choose",
        )
    raise InputError(f"{folder} holds no table of layer {layer}", hint=f"it holds {names}")


def fetch_folder(name: str | Path, *, revision: str | None = None, **hub: Any) -> Path:
    """The folder of that name, or a Hub repository's tables brought here; ``hub`` goes to ``snapshot_download``."""
    if Path(name).exists():
        return Path(name)
    from huggingface_hub import snapshot_download

    files = [PAGE, NUMBERS, f"*/{PAGE}", f"*/{NUMBERS}", POINT]
    try:
        return Path(snapshot_download(str(name), revision=revision, allow_patterns=files, **hub))
    except Exception as error:  # the Hub's client raises those of whatever HTTP library it is built on
        raise ArtifactError(
            f"{name} is neither a folder nor a Hub repository that can be reached ({type(error).__name__})",
            hint="make a table with `reweigh calibrate MODEL IMAGES -o FOLDER` and give that folder",
        ) from error


def table_layers(folder: Path) -> list[int]:
    """The layers of the tables in a calibration folder, or that of a single table's folder, ascending."""
    if (folder / PAGE).is_file():
        return [int(read_page(folder / PAGE)["layer"])]
    names = (path.parent.name.removeprefix("layer-") for path in folder.glob(f"layer-*/{PAGE}"))
    if found := sorted(int(name) for name in names if name.isdigit()):
        return found
    raise ArtifactError(
        f"{folder} holds no reference table ({PAGE})", hint="make one with `reweigh calibrate`"
    )


def read_page(path: Path) -> dict[str, Any]:
    """Read and verify the page of a table."""
    page = read_sealed(path)
    schema = page.get("schema_version")
    if type(schema) is not int or schema not in READABLE:
        raise ArtifactError(
            f"{path} has schema {schema!r}, this version reads {SCHEMA}",
            hint="upgrade reweigh, or make the table again",
        )
    require_fields(page, path, FIELDS)
    identity = page["made_with"].get("identity")
    if not isinstance(identity, Mapping) or not identity:
        raise ArtifactError(
            f"{path} does not say which model the table belongs to: its identity is empty",
            hint="its page was written by hand; calibrate the model again",
        )
    return page
