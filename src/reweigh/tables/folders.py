"""Where reference tables lie: a folder with one table, a calibration's folder with one for each layer, or the Hub."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.folder import SealedFolder
from reweigh.tables.point import POINT, read_point

SCHEMA = 2

HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
"""A Hub repository: OWNER/NAME."""

PAGE = "reference_table.json"
NUMBERS = "reference_table.safetensors"

TABLE = SealedFolder(
    kind="reference table",
    page=PAGE,
    numbers=NUMBERS,
    arrays=("tokens", "references", "counts"),
    fields={"layer": int, "b0": float, "made_with": dict},
    schema=SCHEMA,
    remedy="make one with `reweigh calibrate`, or fetch it again",
)


def find_table(folder: Path, layer: int | None, default: int | None = None) -> Path:
    """Find the folder of one table: itself, or the right ``layer-N`` below a calibration folder."""
    if TABLE.is_in(folder):
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
    """Return the folder of that name, or download a Hub repository's tables; ``hub`` goes to ``snapshot_download``."""
    if Path(name).exists():
        return Path(name)
    remedy = "make a table with `reweigh calibrate MODEL IMAGES -o FOLDER` and give that folder"
    if not HUB_ID.fullmatch(str(name)):
        raise ArtifactError(f"there is no folder {name} (a Hub repository is called OWNER/NAME)", hint=remedy)
    from huggingface_hub import snapshot_download

    files = [PAGE, NUMBERS, f"*/{PAGE}", f"*/{NUMBERS}", POINT]
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


def table_layers(folder: Path) -> list[int]:
    """Return the layers of the tables in a calibration folder, or that of a single table's folder, ascending."""
    if TABLE.is_in(folder):
        return [int(TABLE.read_page(folder)["layer"])]
    names = (path.parent.name.removeprefix("layer-") for path in folder.glob(f"layer-*/{PAGE}"))
    if found := sorted(int(name) for name in names if name.isdigit()):
        return found
    raise ArtifactError(
        f"{folder} holds no reference table ({PAGE})", hint="make one with `reweigh calibrate`"
    )
