"""Endpoints of the page: facts about the model, scenes, evidence by layer and place, a text checked against a picture.

All except facts and scenes use the model and run in the scheduler's thread.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import torch

from reweigh import __version__
from reweigh.engines.transformers.check import tokenize
from reweigh.engines.transformers.measure import measure
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.positions import layout
from reweigh.families.processor import crops_centre, tokenizer_of
from reweigh.method.check import THRESHOLD, check_tokens
from reweigh.method.evidence import Evidence
from reweigh.runtime.reader import Reader
from reweigh.serve.bounds import Bounds
from reweigh.serve.prepare import Prepared
from reweigh.serve.problem import Problem
from reweigh.serve.served import Served
from reweigh.text import DESCRIBE, FUNCTION_WORDS
from reweigh.world.scenes import SIZE
from reweigh.world.scenes import scene as draw_scene

Grid = tuple[int, int, int, int]
"""Image, tile, rows and columns of one grid."""

SCENES = 1_000_000
"""Scenes that can be asked for by number."""
FIRST_SCENE = 129
"""The scene the page begins with: ReWEIGH corrects it."""
WRONG_SCENE = 50
"""The scene that comes second: the base model describes it better."""


def facts(served: Served, bounds: Bounds, *, key_needed: bool) -> dict[str, Any]:
    """What the page needs before the first question."""
    found = served.examined
    table = None if served.reason is not None else served.reweigh().table
    tiles = [] if found is None else found["visual_positions"]["tiles"]
    return {
        "model": served.name,
        "version": __version__,
        "embedded": served.world,
        "scenes": {"first": FIRST_SCENE, "wrong": WRONG_SCENE, "side": SIZE} if served.world else None,
        "prompt": DESCRIBE,
        "key_needed": key_needed,
        "reweigh": {
            "available": table is not None,
            "reason": served.reason,
            "layer": served.layer,
            "beta": served.beta,
            "layers": served.layers,
            "blocks": len(served.anatomy.blocks),
            "b0": None if table is None else table.scale,
            "registered": None if table is None else len(table),
        },
        "parity": None if found is None else found["parity"],
        "grid": None
        if found is None
        else {
            "positions": found["visual_positions"]["count"],
            "tiles": [{"tile": tile, "rows": rows, "cols": cols} for tile, rows, cols in tiles],
        },
        "check": {"threshold": THRESHOLD, "function_words": sorted(FUNCTION_WORDS)},
        "decoders": served.decoders(),
        "limits": {
            "image_bytes": bounds.image_bytes,
            "image_pixels": bounds.image_pixels,
            "images": bounds.images,
            "new_tokens": bounds.new_tokens,
            "context": served.context,
        },
    }


def scene(served: Served, number: int) -> dict[str, Any]:
    """A scene of the embedded world, by number."""
    if not served.world:
        raise Problem(404, "only the embedded model has scenes", code="no_scenes")
    if not 0 <= number < SCENES:
        raise Problem(404, f"scenes have numbers from 0 to {SCENES - 1:,}", param="number", code="no_scene")
    made = draw_scene("evaluation", number)
    kept = BytesIO()
    made.image().save(kept, "PNG")
    picture = base64.b64encode(kept.getvalue()).decode()
    return {
        "number": number,
        "image": f"data:image/png;base64,{picture}",
        "kind": made.kind,
        "objects": made.counts,
    }


def measure_all(served: Served, prepared: Prepared) -> dict[str, Any]:
    """Measure every layer of the table in one pass, and keep it."""
    served.reweigh()  # refuses with the reason where there are no layers
    _, measured = evidence_of(served, prepared, served.layers)
    patches = _patches(served, prepared)
    return {
        "layers": served.layers,
        "positions": len(patches),
        "measured": measured,
        "grids": [{**_grid(grid), "covers": covers} for grid, covers in _covered(served, _grids(patches))],
    }


def evidence_of(
    served: Served, prepared: Prepared, layers: Sequence[int]
) -> tuple[dict[int, Evidence], bool]:
    """The evidence of the whole vocabulary at some layers, and whether any of it had to be measured."""
    key = _key(prepared)
    readers = {layer: _reader(served, layer) for layer in layers}
    found = {layer: served.recall.find([key], reader)[0] for layer, reader in readers.items()}
    missing = [layer for layer, one in found.items() if one is None]
    if missing:
        lens = readers[missing[0]].lens
        fresh = measure(served.model, prepared.inputs, layers=missing, dtype=lens.mode, chunk=lens.chunk)[0]
        if fresh is None:
            raise InputError("the prompt holds no image")
        for layer in missing:
            served.recall.keep([key], [None], [fresh], readers[layer])
            found[layer] = fresh
    return {layer: one for layer, one in found.items() if one is not None}, bool(missing)


def heat(served: Served, prepared: Prepared, token: int) -> dict[str, Any]:
    """Where the evidence of a token lies, at every layer of the table; the last block's where there is no table."""
    _key(prepared)
    if not 0 <= token < served.anatomy.vocab_size:
        raise InputError(f"the model's vocabulary has no token {token}")
    if served.examined is None or not served.examined["parity"]["holds"]:
        raise UnsupportedError(f"evidence cannot be read: {served.reason}")
    layers = served.layers or [len(served.anatomy.blocks) - 1]
    reading: dict[str, Any] = {}
    if served.layers:
        lens = _reader(served, layers[0]).lens
        reading = {"dtype": lens.mode, "chunk": lens.chunk}
    found = measure(served.model, prepared.inputs, layers=layers, locate=[token], **reading)[0]
    assert found is not None  # the key says that there is an image
    grids = _grids(found.patches)
    tokenizer = tokenizer_of(served.processor)
    return {
        "token": token,
        "text": str(tokenizer.decode([token])),
        "layers": [_heat_of(served, found, layer, token, grids) for layer in layers],
        "reason": None if grids else "the positions of this family have no place in the picture",
    }


def _heat_of(
    served: Served, found: Evidence, layer: int, token: int, grids: Sequence[Grid]
) -> dict[str, Any]:
    located = found.located
    assert located is not None
    heat_map: dict[str, Any] = {"layer": layer, "dmrr": float(found.at(layer)[token]), "b": None, "s": None}
    if served.layers:
        one = check_tokens("?", [token], [(0, 1)], found.at(layer), served.reweigh(layer).table).tokens[0]
        heat_map |= {"b": one.reference, "s": one.strength}
    heat_map["max"] = float(located[found.layers.index(layer)].max())
    heat_map["grids"] = [
        {**_grid(grid), "covers": covers, "cells": _plain(found.grid(layer, 0, image=grid[0], tile=grid[1]))}
        for grid, covers in _covered(served, grids)
    ]
    return heat_map


def check(served: Served, prepared: Prepared, text: str, layer: int | None) -> dict[str, Any]:
    """Which words of a text lack support in the conversation's pictures."""
    session = served.reweigh(layer)
    ids, offsets = tokenize(served.processor, text)
    found, _ = evidence_of(served, prepared, [session.layer])
    checked = check_tokens(text, ids, offsets, found[session.layer].at(session.layer), session.table)
    return {**checked.to_json(), "layer": session.layer, "b0": session.table.scale}


def token_of(served: Served, word: str) -> int:
    """The first token of a word as it appears in a text, after a space."""
    tokenizer = tokenizer_of(served.processor)

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    before, longer, alone = ids("a"), ids(f"a {word.strip()}"), ids(word.strip())
    if not alone:
        raise InputError("the word is empty", hint="give a word that a description might contain")
    after = longer[len(before) :] if longer[: len(before)] == before else alone
    spoken = [token for token in after if tokenizer.decode([token]).strip()]
    return spoken[0] if spoken else alone[0]


def _reader(served: Served, layer: int) -> Reader:
    """Reads the whole vocabulary at one layer, through the lens of the table."""
    return Reader(served.reweigh(layer).decoder.deployed.lens, [layer])


def _key(prepared: Prepared) -> str:
    if prepared.key is None:
        raise InputError("the conversation holds no image", hint="add one to a message")
    return prepared.key


def _patches(served: Served, prepared: Prepared) -> list[Any]:
    """The patch of each visual position."""
    family, config = served.anatomy.family, served.anatomy.config
    rows = layout(family, config, prepared.inputs["input_ids"], prepared.inputs)
    return [patch for _, patch in rows[0]]


def _grids(patches: Sequence[Any]) -> list[Grid]:
    """Image, tile, rows and columns of each grid."""
    found = ((patch.image, patch.tile, patch.rows, patch.cols) for patch in patches if patch is not None)
    return sorted(dict.fromkeys(found))


def _grid(grid: Grid) -> dict[str, int]:
    return dict(zip(("image", "tile", "rows", "cols"), grid, strict=True))


def _covered(served: Served, grids: Sequence[Grid]) -> list[tuple[Grid, str | None]]:
    """Which part of its picture each grid covers: all, the centre square, or a crop at an unknown place."""
    whole = "centre" if crops_centre(served.processor) else "whole"
    last = {image: tile for image, tile, *_ in sorted(grids)}
    crops = served.anatomy.family.crops
    return [(grid, None if crops and grid[1] != last[grid[0]] else whole) for grid in grids]


def _plain(cells: torch.Tensor) -> list[list[float | None]]:
    return [[None if value != value else value for value in row] for row in cells.tolist()]
