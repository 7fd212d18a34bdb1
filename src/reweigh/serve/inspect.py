"""The page's endpoints: facts about the model, scenes, evidence by layer and place, a text checked against a picture.

All that need the model run in the scheduler's thread.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from torch import Tensor

from reweigh import __version__
from reweigh.engines.reader import Reader
from reweigh.engines.transformers.observe import whole_words
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.positions import layout
from reweigh.families.processor import crops_center, tokenizer_of
from reweigh.measuring import measure, tokenize
from reweigh.method.check import THRESHOLD, check_tokens
from reweigh.method.evidence import Evidence
from reweigh.method.lens import Lens
from reweigh.serve.bounds import Bounds
from reweigh.serve.evidence import Support, recall_or_measure
from reweigh.serve.prepare import Prepared
from reweigh.serve.problem import Problem, invalid
from reweigh.serve.served import Served
from reweigh.serve.wire import CheckRequest, Conversation, HeatRequest, WordsRequest
from reweigh.text import DESCRIBE, NEVER_JUDGED
from reweigh.world.scenes import SIZE
from reweigh.world.scenes import scene as draw_scene
from reweigh.world.vocabulary import object_names

SCENES = 1_000_000
"""Scenes that can be asked for by number."""
CHECK_TOKENS = 8_192
"""Tokens of a text to check, four times the longest answer; comparing more would hold up chats."""
BESIDE_BYTES = 1 << 16
"""Bytes that the page leaves for the rest of a request beside its picture in base64."""
FIRST_SCENE = 129
"""The scene that the page starts with: ReWEIGH corrects it."""
WRONG_SCENE = 50
"""The scene that comes second: the base model describes it better."""


def facts(served: Served, bounds: Bounds, *, key_needed: bool) -> dict[str, Any]:
    """Return what the page needs before the first question."""
    found = served.examined
    session = None if served.reason is not None else served.reweigh()
    tiles = [] if found is None else found["visual_positions"]["tiles"]
    return {
        "model": served.name,
        "version": __version__,
        "embedded": served.world,
        "scenes": _scenes() if served.world else None,
        "prompt": DESCRIBE,
        "key_needed": key_needed,
        "reweigh": {
            "available": session is not None,
            "reason": served.reason,
            "layer": None if session is None else session.layer,
            "beta": None if session is None else session.beta,
            "layers": served.layers,
            "blocks": len(served.anatomy.blocks),
            "b0": None if session is None else session.table.b0,
            "registered": None if session is None else len(session.table),
        },
        "parity": None if found is None else found["parity"],
        "grid": None
        if found is None
        else {
            "positions": found["visual_positions"]["count"],
            "tiles": [{"tile": tile, "rows": rows, "cols": cols} for tile, rows, cols in tiles],
        },
        "check": {"threshold": THRESHOLD, "function_words": sorted(NEVER_JUDGED)},
        "decoders": served.decoders(),
        "limits": {
            "image_bytes": bounds.body_bytes * 3 // 4 - BESIDE_BYTES,
            "image_pixels": bounds.image_pixels,
            "images": bounds.images,
            "new_tokens": bounds.new_tokens,
            "context": served.context,
        },
    }


def _scenes() -> dict[str, Any]:
    """Return what the page knows of the embedded world: two scenes worth seeing, and what objects are called."""
    return {"first": FIRST_SCENE, "wrong": WRONG_SCENE, "side": SIZE, "names": object_names()}


def scene(served: Served, number: int) -> dict[str, Any]:
    """Draw a scene of the embedded world, by number."""
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


def measure_all(served: Served, _asked: Conversation, prepared: Prepared) -> dict[str, Any]:
    """Measure every layer of the table in one pass, and cache it."""
    served.reweigh()  # refuses with the reason if there are no layers
    _, measured = _evidence(served, prepared, served.layers)
    family, config = served.anatomy.family, served.anatomy.config
    placed = layout(family, config, prepared.inputs["input_ids"], prepared.inputs)[0]
    return {
        "layers": served.layers,
        "positions": len(placed),
        "measured": measured,
        "grids": _grids(served, [patch for _, patch in placed]),
    }


def _evidence(served: Served, prepared: Prepared, layers: Sequence[int]) -> tuple[list[Evidence], bool]:
    """Return the evidence of the whole vocabulary at some layers, and whether any of it had to be measured."""
    _require_image(prepared)
    readers = [Reader(_lens(served, layer), [layer]) for layer in layers]
    return recall_or_measure(served.model, served.recall, prepared, readers)


def heat(served: Served, asked: HeatRequest, prepared: Prepared) -> dict[str, Any]:
    """Map the evidence of a token at every layer of the table, or at the last block if there is no table."""
    token = _token_of(served, asked.word or "") if asked.token is None else asked.token
    _require_image(prepared)
    if not 0 <= token < served.anatomy.rows:
        raise InputError(f"the language model's own vocabulary has no token {token}")
    if served.examined is None or not served.examined["parity"]["holds"]:
        raise UnsupportedError(f"evidence cannot be read: {served.reason}")
    layers = served.layers or [len(served.anatomy.blocks) - 1]
    reading: dict[str, Any] = {}
    if served.layers:
        lens = _lens(served, layers[0])
        reading = {"dtype": lens.mode, "chunk": lens.chunk}
    found = measure(served.model, prepared.inputs, layers=layers, locate=[token], **reading)[0]
    assert found is not None  # there is an image
    grids = _grids(served, found.patches)
    tokenizer = tokenizer_of(served.processor)
    return {
        "token": token,
        "text": str(tokenizer.decode([token])),
        "layers": [_heat_of(served, found, layer, token, grids) for layer in layers],
        "reason": None if grids else "this family's positions do not map to places in the picture",
    }


def _heat_of(
    served: Served, found: Evidence, layer: int, token: int, grids: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    assert found.located is not None
    known = Support(found, served.reweigh(layer)).of(token) if served.layers else {"b": None, "s": None}
    maps = []
    for grid in grids:
        cells = found.grid(layer, 0, image=grid["image"], tile=grid["tile"]).tolist()
        maps.append(grid | {"cells": [[None if value != value else value for value in row] for row in cells]})
    return {
        "layer": layer,
        **known,
        "dmrr": float(found.at(layer)[token]),
        "max": float(found.located[found.layers.index(layer)].max()),
        "grids": maps,
    }


def evidence_to_check(served: Served, asked: CheckRequest, prepared: Prepared) -> Tensor:
    """Return the evidence (V,) that a text is checked against."""
    layer = served.reweigh(asked.layer).layer
    (found,), _ = _evidence(served, prepared, [layer])
    return found.at(layer)


def check(served: Served, asked: CheckRequest, evidence: Tensor) -> dict[str, Any]:
    """Report which words of a text lack support in the conversation's pictures; needs no model."""
    session = served.reweigh(asked.layer)
    ids, offsets = tokenize(served.processors[0], asked.text)
    if len(ids) > CHECK_TOKENS:
        told = f"the text has {len(ids):,} tokens; at most {CHECK_TOKENS:,} are checked at once"
        raise invalid("text", told)
    checked = check_tokens(asked.text, ids, offsets, evidence, session.table)
    return {**checked.to_json(), "layer": session.layer, "b0": session.table.b0}


def words(served: Served, asked: WordsRequest, prepared: Prepared) -> dict[str, Any]:
    """Complete the words that tokens begin after an answer's beginning, as the unedited model would."""
    _require_image(prepared)
    for token in (*asked.said, *asked.tokens):
        if token >= served.anatomy.rows:
            raise InputError(f"the language model's own vocabulary has no token {token}")
    if prepared.prompt_tokens + len(asked.said) >= served.context:
        raise InputError(
            f"the prompt and the words said fill the model's context ({served.context:,} tokens)"
        )
    found = whole_words(served.model, served.processor, prepared.inputs, asked.said, asked.tokens)
    return {"words": {str(token): word for token, word in found.items()}}


def _token_of(served: Served, word: str) -> int:
    """Return the first token of a word as it appears in a text, after a space."""
    tokenizer = tokenizer_of(served.processor)

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    before, longer, alone = ids("a"), ids(f"a {word.strip()}"), ids(word.strip())
    if not alone:
        raise InputError("the word is empty", hint="give a word that a description might contain")
    after = longer[len(before) :] if longer[: len(before)] == before else alone
    spoken = [token for token in after if tokenizer.decode([token]).strip()]
    return spoken[0] if spoken else alone[0]


def _lens(served: Served, layer: int) -> Lens:
    """Return the lens of the table at one layer."""
    return served.reweigh(layer).decoder.reader.lens


def _require_image(prepared: Prepared) -> None:
    if prepared.key is None:
        raise InputError("the conversation has no image", hint="add one to a message")


def _grids(served: Served, patches: Sequence[Any]) -> list[dict[str, Any]]:
    """List the patch grids and what each covers: the whole picture, its center square, or an unknown crop."""
    found = sorted({(one.image, one.tile, one.rows, one.cols) for one in patches if one is not None})
    whole = "centre" if crops_center(served.processor) else "whole"
    last = {image: tile for image, tile, _, _ in found}
    crops = served.anatomy.family.crops
    return [
        {"image": image, "tile": tile, "rows": rows, "cols": cols}
        | {"covers": None if crops and tile != last[image] else whole}
        for image, tile, rows, cols in found
    ]
