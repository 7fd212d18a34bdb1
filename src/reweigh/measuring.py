"""``reweigh.measure`` and ``reweigh.check``: the visual evidence of a model's inputs, and a text compared with it.

Evidence depends on the image and the prompt only, so a text to check need not be fed to the model: its tokens are looked up.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from reweigh.engines.base import Decoder, Pass
from reweigh.engines.pairing import pair
from reweigh.engines.reader import Reader
from reweigh.engines.run import suspended
from reweigh.engines.session import tie
from reweigh.engines.transformers.manager import watching
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.processor import tokenizer_of
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.images import read_image
from reweigh.method.check import Checked, check_tokens
from reweigh.method.evidence import Evidence
from reweigh.method.lens import CHUNK
from reweigh.method.readouts import DMRR
from reweigh.tables.table import ReferenceTable
from reweigh.text import Template

if TYPE_CHECKING:
    from PIL.Image import Image


def measure(
    model: Any,
    inputs: Mapping[str, Any],
    layers: Sequence[int] = (-1,),
    *,
    tokens: Sequence[int] | None = None,
    locate: Sequence[int] = (),
    dtype: str = "native",
    chunk: int = CHUNK,
    readout: str = DMRR,
) -> list[Evidence | None]:
    """Measure the visual evidence of each row of ``inputs`` at one or several layers, in one forward pass.

    Args:
        model: A transformers vision-language model.
        inputs: The processor's outputs, on the model's device.
        layers: 0-based decoder blocks; -1 is the last.
        tokens: Measure these token ids only; ranks still run over the whole vocabulary.
        locate: Token ids whose reciprocal rank is kept for every position, to be drawn on the picture.
        dtype: "native" ranks the head's own logits, "float32" upcasts them first.
        chunk: Positions read at once; bounds the working memory to ``chunk`` x vocabulary.
        readout: How logits become evidence: the method's "dmrr", or prob, logprob, zscore, zprob for comparison.

    Returns:
        One ``Evidence`` per row; ``None`` for a row without image.

    Raises:
        InputError: No row holds an image, or a layer is out of range.

    Examples:
        >>> import reweigh
        >>> from reweigh import world
        >>> from reweigh.world.render import render
        >>> from reweigh.world.scenes import scene
        >>> model, processor = reweigh.load(world.path())
        >>> picture = render(scene("evaluation", 3), 112)
        >>> from reweigh.families.prompts import build_inputs
        >>> reweigh.measure(model, build_inputs(model, processor, [picture], ["What is in it?"]))
        [<Evidence of every token at 64 visual positions, layer 4 (dmrr)>]
    """
    anatomy = find_anatomy(model)
    if not isinstance(inputs, Mapping):
        raise InputError(f"inputs are a {type(inputs).__name__}", hint="pass what the processor returned")
    if not isinstance(layers, Iterable) or not len(blocks := tuple(map(anatomy.check_layer, layers))):
        raise InputError(
            f"layers must be a list, not {layers!r}", hint="name the blocks, e.g. [-1] for the last"
        )
    lens = anatomy.lens(dtype=dtype, chunk=chunk)
    reader = Reader(lens, blocks, tokens=tokens, locate=locate, readouts=[readout])
    passes: list[Pass] = []

    def read(forward: Pass) -> None:
        reader.gather(forward)
        passes.append(forward)

    with suspended(anatomy.model), watching(anatomy, blocks, read), torch.no_grad():
        model(**{**inputs, **forward_options(anatomy)})
    rows = passes[-1].rows if passes else []
    if not any(row.positions for row in rows):
        raise InputError(
            "the prompt contains no image, so there is nothing to measure",
            hint=f"the image token is {anatomy.image_tokens}; build inputs with the processor and an image",
        )
    return [reader.evidence(row) for row in rows]


def forward_options(anatomy: Anatomy) -> dict[str, Any]:
    """Keep the pass small: no cache, and logits of one position only where the family can."""
    known = inspect.signature(anatomy.model.forward).parameters
    options = {"use_cache": False, "logits_to_keep": 1}
    return {name: value for name, value in options.items() if name in known or name == "use_cache"}


def check(
    model: Any,
    processor: Any,
    image: str | Path | bytes | Image,
    text: str | None = None,
    *,
    table: ReferenceTable | str | Path,
    layer: int | None = None,
    prompt: str = DESCRIBE,
    template: Template | None = None,
    force: bool = False,
) -> Checked:
    """Compare each token of ``text`` with its reference, given the image.

    Args:
        text: A description the model wrote, or any other; the model's own description of the image if not given.
        table: A reference table, its folder, or a Hub repository.
        prompt: The prompt the image is shown with; use the table's own.

    Examples:
        >>> import reweigh
        >>> from reweigh import world
        >>> from reweigh.world.render import render
        >>> from reweigh.world.scenes import scene
        >>> model, processor = reweigh.load(world.path())
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
        raise InputError("the prompt contains no image")
    return check_tokens(text, ids, offsets, found.at(table.layer), table)


def own_description(
    model: Any, processor: Any, image: str | Path | bytes | Image, prompt: str, template: Template | None
) -> str:
    """Return the unedited model's description of an image."""
    plain = tie(Decoder(find_anatomy(model), processor))
    return str(plain.describe(image, prompt, template=template))


def tokenize(processor: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the tokens of a text, and the characters that each stands for."""
    if not text.strip():
        raise InputError("the text to check is empty")
    tokenizer = tokenizer_of(processor)
    if not getattr(tokenizer, "is_fast", False):
        raise InputError("checking a text needs a fast tokenizer, which knows where its tokens lie")
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return list(encoded["input_ids"]), [tuple(pair) for pair in encoded["offset_mapping"]]
