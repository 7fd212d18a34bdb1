"""``reweigh.check``: hold a text against an image.

Evidence depends on the image and the prompt only, so the text need not be fed to the model: its tokens are looked up.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.engines.transformers.measure import measure
from reweigh.engines.transformers.pairing import pair
from reweigh.engines.transformers.session import Session
from reweigh.errors import InputError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.processor import tokenizer_of
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.images import read_image
from reweigh.method.check import Checked, check_tokens
from reweigh.runtime.decoder import Decoder
from reweigh.tables.table import ReferenceTable

if TYPE_CHECKING:
    from PIL.Image import Image


def check(
    model: Any,
    processor: Any,
    image: str | Path | bytes | Image,
    text: str | None = None,
    *,
    table: ReferenceTable | str | Path,
    layer: int | None = None,
    prompt: str = DESCRIBE,
    template: str | None = None,
    force: bool = False,
) -> Checked:
    """Compare each token of ``text`` with its reference, given the image.

    Args:
        text: A description the model wrote, or any other; the model's own description of the image if not given.
        table: A reference table, its folder, or a Hub repository.
        prompt: The prompt the image is shown with; use the table's own.

    Example:
        >>> import reweigh
        >>> from reweigh import world
        >>> from reweigh.families.load import load
        >>> from reweigh.world.render import render
        >>> from reweigh.world.scenes import scene
        >>> model, processor = load(world.path())
        >>> picture = render(scene("evaluation", 3), 112)
        >>> found = reweigh.check(model, processor, picture, "There is a dog.", table=world.table_path())
        >>> print(*(word.text for word in found.unsupported()))
        dog.
    """
    anatomy = find_anatomy(model)
    table, lens = pair(anatomy, processor, table, layer=layer, force=force)
    text = own_description(model, processor, image, prompt, template) if text is None else text
    ids, offsets = tokenize(processor, text)
    inputs = build_inputs(model, processor, [read_image(image)], [prompt], template=template)
    reading: dict[str, Any] = {"dtype": lens.mode, "chunk": lens.chunk, "readout": table.readout}
    found = measure(model, inputs, layers=[table.layer], **reading)[0]
    if found is None:
        raise InputError("the prompt holds no image")
    return check_tokens(text, ids, offsets, found.at(table.layer), table)


def own_description(
    model: Any, processor: Any, image: str | Path | bytes | Image, prompt: str, template: str | None
) -> str:
    """What the unedited model says of an image."""
    session = Session(model, processor, Decoder(find_anatomy(model)))
    return str(session.describe(image, prompt, template=template))


def tokenize(processor: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """The tokens of a text, and the characters that each stands for."""
    if not text.strip():
        raise InputError("the text to check is empty")
    tokenizer = tokenizer_of(processor)
    if not getattr(tokenizer, "is_fast", False):
        raise InputError("checking a text needs a fast tokenizer, which knows where its tokens lie")
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return list(encoded["input_ids"]), [tuple(pair) for pair in encoded["offset_mapping"]]
