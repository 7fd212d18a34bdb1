"""Where reference tables are: a file, a folder with one file for each layer, or a repository of the Hub."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.paged import peek
from reweigh.tables import schema2
from reweigh.tables.point import OperatingPoint

HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
"""A Hub repository: OWNER/NAME."""
LAYER = re.compile(r"layer-(\d+)\.safetensors", re.ASCII)


def file_name(layer: int) -> str:
    """Return what the file of a layer's table is called."""
    return f"layer-{layer}.safetensors"


def table_files(folder: Path) -> dict[int, Path]:
    """Return the tables of a folder by layer; of an older folder, the folder of each."""
    files = {int(named[1]): path for path in folder.glob("*") if (named := LAYER.fullmatch(path.name))}
    found = files or schema2.table_folders(folder)
    if not found:
        raise ArtifactError(
            f"{folder} contains no reference table ({file_name(0).replace('0', 'N')})",
            hint="make one with `reweigh calibrate`; the same command finishes one that was stopped",
        )
    return dict(sorted(found.items()))


def find_table(place: Path, layer: int | None, default: int | None = None) -> Path:
    """Find one table: a file itself, or the right layer of a folder."""
    if place.is_file():
        return place
    files = table_files(place)
    if layer is None and len(files) > 1:
        tuned = [one for one, path in files.items() if _is_tuned(place, path, one)]
        layer = tuned[0] if tuned else default if default in files else None
    if layer is None and len(files) == 1:
        return next(iter(files.values()))
    names = ", ".join(map(str, files))
    if layer is None:
        raise InputError(
            f"{place} contains tables of several layers: {names}, and no tuned point",
            hint="say which with layer= (--layer), or let `reweigh tune` choose",
        )
    if layer not in files:
        raise InputError(f"{place} contains no table of layer {layer}", hint=f"it contains {names}")
    return files[layer]


def _is_tuned(folder: Path, path: Path, layer: int) -> bool:
    """Whether a table has an operating point; only its header is read, which is verified when the table is."""
    return schema2.tuned_layer(folder) == layer if path.is_dir() else "point" in peek(path)


def recorded_point(folder: Path) -> OperatingPoint | None:
    """Return the operating point that tuning recorded in one of a folder's tables."""
    from reweigh.tables.table import ReferenceTable

    if folder.is_file():
        return ReferenceTable.from_pretrained(folder).point
    tables = (ReferenceTable.from_pretrained(folder, layer=layer) for layer in table_files(folder))
    return next((table.point for table in tables if table.point is not None), None)


def record_point(folder: Path, point: OperatingPoint) -> Path:
    """Record an operating point in the table of its layer, and in no other of the folder; return that table's file."""
    from reweigh.tables.table import ReferenceTable

    for layer, path in table_files(folder).items():
        table = ReferenceTable.from_pretrained(path)
        new = point if layer == point.layer else None
        if table.point != new or path.is_dir():
            replace(table, point=new).save_pretrained(folder)
    return folder / file_name(point.layer)


def table_layers(place: Path) -> list[int]:
    """Return the layers of the tables in a folder, or that of a file, ascending."""
    if place.is_dir():
        return list(table_files(place))
    from reweigh.tables.table import ReferenceTable

    return [ReferenceTable.from_pretrained(place).layer]


def fetch_folder(name: str | Path, *, revision: str | None = None, **hub: Any) -> Path:
    """Return the place of that name, or download a Hub repository's tables; ``hub`` goes to ``snapshot_download``."""
    if Path(name).exists():
        return Path(name)
    remedy = "make a table with `reweigh calibrate MODEL IMAGES -o FOLDER` and give that folder"
    if not HUB_ID.fullmatch(str(name)):
        raise ArtifactError(f"there is no folder {name} (a Hub repository is called OWNER/NAME)", hint=remedy)
    from huggingface_hub import snapshot_download

    files = ["layer-*.safetensors", *schema2.FILES]
    try:
        return Path(snapshot_download(str(name), revision=revision, allow_patterns=files, **hub))
    except Exception as error:  # the Hub's client raises those of whatever HTTP library it is built on
        raise ArtifactError(
            f"{name} is neither a folder nor a Hub repository that can be reached ({type(error).__name__})",
            hint=remedy,
        ) from error


def push_folder(
    folder: str, repo_id: str, *, private: bool | None, token: str | bool | None, **hub: Any
) -> str:
    """Upload a table's folder to a Hub repository; ``hub`` goes to ``HfApi.upload_folder``."""
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    try:
        address = str(api.create_repo(repo_id, private=private, exist_ok=True))
        api.upload_folder(repo_id=repo_id, folder_path=folder, **hub)
    except Exception as error:  # of whatever HTTP library the Hub's client is built on
        raise ArtifactError(
            f"the table cannot be uploaded to {repo_id} ({type(error).__name__})",
            hint="log in with `hf auth login` and use a repository you may write to, e.g. you/my-table",
        ) from error
    return address
