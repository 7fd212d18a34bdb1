"""The model's own description of each picture of a prompt, written once per picture and then cached.

It is written in a generation of its own, inside the pass that asks for it, without disturbing the sequence under way.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from reweigh.engines.transformers.arguments import TOKEN_TYPES
from reweigh.engines.transformers.session import end_tokens, read_answers
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.identity import Watch
from reweigh.families.prompts import render
from reweigh.rivals.tools.branch import Runner
from reweigh.rivals.tools.inputs import forwardable, image_tags, padded, picture_parts, rows_of, token_kinds
from reweigh.runtime.answer import Answer
from reweigh.runtime.forward import Pass

KEPT = 1024
"""How many descriptions are cached, the most recently used ones."""

PLAIN = {"do_sample": False, "num_beams": 1, "temperature": None, "top_p": None, "top_k": None}


class Describer:
    """Writes and caches descriptions.

    Args:
        question: What the model is asked about a picture.
        length: Most tokens of a description.
        template: Used instead of the processor's chat template; holds ``{prompt}`` and the image placeholder.
    """

    def __init__(
        self, anatomy: Anatomy, processor: Any, question: str, length: int, template: str | None = None
    ) -> None:
        self.anatomy = anatomy
        self.processor = processor
        self.length = length
        text = render(anatomy.model, processor, question, True, template)
        if hasattr(processor, "full_image_sequence"):  # Gemma's blank lines around an image
            text = text.replace(processor.boi_token, processor.full_image_sequence)
        self._words: list[int] = processor.tokenizer(text)["input_ids"]
        self._question = question
        self._marks = {*anatomy.image_tokens, *image_tags(anatomy, processor)}
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._watch = Watch(anatomy.model)
        self._lock = threading.Lock()

    def describe(self, forward: Pass) -> list[str]:
        """A description for each row of the prompt; empty where there is no image."""
        if any(row.images > 1 for row in forward.prompts):
            raise UnsupportedError(
                "a prompt shows several images, and one description stands for one image",
                hint="give the descriptions yourself (descriptions=)",
            )
        rows = [number for number, row in enumerate(forward.prompts) if row.positions]
        keys = self._keys(forward, len(rows))
        found = self._find(keys)
        if len(found) < len(set(keys)):
            found = dict(zip(keys, self._write(forward, rows), strict=True))
        self._keep(found)
        texts = [""] * len(forward.prompts)
        for row, key in zip(rows, keys, strict=True):
            texts[row] = found[key]
        return texts

    def _keys(self, forward: Pass, count: int) -> list[str]:
        parts = picture_parts(self.anatomy, forward.inputs)
        hashes = [hashlib.sha256(_bytes(part) + repr(part.shape).encode()).hexdigest() for part in parts]
        return hashes if len(hashes) == count else [f"{'.'.join(hashes)} {row}" for row in range(count)]

    def _find(self, keys: Sequence[str]) -> dict[str, str]:
        with self._lock:
            if self._watch.changed() is not None:
                self._watch = Watch(self.anatomy.model)
                self._kept.clear()
            return {key: self._kept[key] for key in keys if key in self._kept}

    def _keep(self, found: dict[str, str]) -> None:
        with self._lock:
            for key, text in found.items():
                self._kept[key] = text
                self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def _write(self, forward: Pass, rows: Sequence[int]) -> list[str]:
        written = write_suspended(self.anatomy, self.processor, self.inputs(forward, rows), self.length)
        return [answer.text for answer in written]

    def inputs(self, forward: Pass, rows: Sequence[int]) -> dict[str, Any]:
        """The prompt's inputs with the question in place of its text, for the rows that have an image."""
        inputs = forwardable(self.anatomy, forward.inputs)
        given = rows_of(inputs)
        places = [place for place, token in enumerate(self._words) if token in self._marks]
        # a prompt without placeholder (Q-Former families) has its image before the text
        start, end = (places[0], places[-1] + 1) if places else (0, 0)
        longer = [[*self._words[:start], *self._image(given[row]), *self._words[end:]] for row in rows]
        inputs |= padded(longer, inputs["input_ids"].device)
        for name in TOKEN_TYPES:
            if name in inputs:
                inputs[name] = token_kinds(self.anatomy, inputs["input_ids"])
        if "qformer_input_ids" in inputs:
            words = self.processor.qformer_tokenizer([self._question] * len(rows), return_tensors="pt")
            for name in ("input_ids", "attention_mask"):
                inputs[f"qformer_{name}"] = words[name].to(inputs["input_ids"].device)
        return inputs

    def _image(self, row: Sequence[int]) -> Sequence[int]:
        """The image's columns with the tags around them."""
        image = [place for place, token in enumerate(row) if token in self.anatomy.image_tokens]
        first = image[0] - (image[0] > 0 and row[image[0] - 1] in self._marks)
        last = image[-1] + (image[-1] + 1 < len(row) and row[image[-1] + 1] in self._marks)
        return row[first : last + 1]


def write_suspended(anatomy: Anatomy, processor: Any, inputs: Mapping[str, Any], length: int) -> list[Answer]:
    """The model's own greedy answers to prepared inputs, in a generation that no decoder edits."""
    with Runner(anatomy).suspended(), torch.no_grad():
        output = anatomy.model.generate(**inputs, **PLAIN, max_new_tokens=length)
    return read_answers(processor, output, inputs, end_tokens(anatomy.language_model))


def _bytes(part: torch.Tensor) -> bytes:
    return part.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
