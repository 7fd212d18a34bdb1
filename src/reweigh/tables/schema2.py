"""Tables as reweigh wrote them before: a folder with a page, its numbers and perhaps a tuned point. Read only.

``reweigh table export OLD -o NEW`` rewrites one.
"""

from __future__ import annotations

import base64
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.errors import ArtifactError
from reweigh.files.artifacts import read_json, read_tensors, require_fields, sha256_file, sha256_json
from reweigh.tables.key import SAMPLES, weights_of

SCHEMA = 2
PAGE, NUMBERS, POINT = "reference_table.json", "reference_table.safetensors", "operating_point.json"
FILES = (PAGE, NUMBERS, f"*/{PAGE}", f"*/{NUMBERS}", POINT)
SEAL = "page_sha256"

logger = logging.getLogger("reweigh.tables")


def table_folders(folder: Path) -> dict[int, Path]:
    """Return the folders of tables by layer: the folder itself, or those below it."""
    if (folder / PAGE).is_file():
        return {int(_read_page(folder / PAGE)["layer"]): folder}
    below = {path.parent.name.removeprefix("layer-"): path.parent for path in folder.glob(f"layer-*/{PAGE}")}
    return {int(name): path for name, path in below.items() if name.isdigit()}


def tuned_layer(folder: Path) -> int | None:
    """Return the layer of the point that tuning recorded in a folder."""
    point = _read_page(folder / POINT) if (folder / POINT).is_file() else {}
    return point.get("layer")


def read_table(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a table as the page and the arrays that it would have now."""
    page = _read_page(folder / PAGE)
    require_fields(page, folder / PAGE, {"layer": int, "b0": float, "made_with": dict, "numbers_sha256": str})
    if page.get("schema_version") != SCHEMA:
        raise ArtifactError(
            f"{folder / PAGE} has schema {page.get('schema_version')!r}, this version reads {SCHEMA} and 3",
            hint="upgrade reweigh, or calibrate again",
        )
    if not (folder / NUMBERS).is_file() or sha256_file(folder / NUMBERS) != page["numbers_sha256"]:
        raise ArtifactError(
            f"{folder / NUMBERS} is missing, or is not the file that its page describes: it was cut or altered",
            hint="fetch it or make it again",
        )
    logger.warning("%s is of an older version; rewrite it: reweigh table export %s -o NEW", folder, folder)
    point = _point(folder, page["layer"])
    about = page["made_with"]
    if isinstance(identity := about.get("identity"), dict) and isinstance(identity.get("weights"), dict):
        about = {**about, "identity": {**identity, "weights": weights_now(identity["weights"])}}
    now = {"layer": page["layer"], "b0": page["b0"], "about": about}
    return {**now, **({} if point is None else {"point": point})}, read_tensors(folder / NUMBERS)


def _point(folder: Path, layer: int) -> dict[str, Any] | None:
    """Return the point that tuning recorded for a table, in its folder or the one above it."""
    for path in (folder / POINT, folder.parent / POINT):
        if path.is_file() and (page := _read_page(path)).get("layer") == layer:
            on = page["chosen_on"]
            source = f"tuned on {on['records']:,} records of {on['benchmark']}, recorded with the table"
            about = {"records": on["records"], "pictures": on.get("pictures", {})}
            return {"beta": page["beta"], "source": source, **about}
    return None


def _read_page(path: Path) -> dict[str, Any]:
    page = read_json(path)
    seal = page.pop(SEAL, None) if isinstance(page, dict) else None
    try:
        whole = seal is not None and seal == sha256_json(page)
    except (ValueError, RecursionError):  # a number that JSON cannot hold, such as 1e999
        whole = False
    if not whole:
        raise ArtifactError(f"{path} was altered after it was written", hint="fetch it or make it again")
    return dict(page)


def weights_now(signatures: Mapping[str, str]) -> dict[str, Any]:
    """Return the weights of a key from the signatures that tables had: type, shape and values of each tensor."""
    samples = {}
    for name, signature in signatures.items():
        kind, shape, text = signature.split(" ")
        data = base64.b64decode(text)
        if kind == "bfloat16":
            values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        elif kind in NUMBERS_OF:
            values = np.frombuffer(data, NUMBERS_OF[kind]).astype(np.float32)
        else:  # a packed type: agrees with nothing
            values = np.full(SAMPLES, np.nan, np.float32)
        samples[name] = values, math.prod(map(int, shape.split("x"))) if shape != "scalar" else 1
    return weights_of(samples)


NUMBERS_OF = {"float16": "<f2", "float32": "<f4", "int8": "i1", "uint8": "u1", "int32": "<i4", "int64": "<i8"}
