"""CODE (Kim et al., NeurIPS 2024): contrast with the model's own description in place of the image.

y = (2 - D) a - (1 - D) r on the tokens with p >= D max p, where D is the bounded divergence of the two passes.

D = ½ sum_v (p + q) log2(1 + |p - q|^power) lies in [0, 1]; p and q are the distributions of a and r. The model writes one
description of each picture, in a generation of its own.

The branch is a text-only prompt. As in the official program, the description is tokenized with special tokens, so a BOS
may stand inside the prompt; and a prompt has one image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import (
    Anatomy,
    Contrast,
    InputError,
    Memory,
    Pass,
    Prompt,
    Run,
    UnsupportedError,
    Watch,
    beside,
    end_tokens,
    fits,
    forwardable,
    generate_greedily,
    image_tags,
    in_range,
    mix,
    padded,
    picture_parts,
    prompt_ids,
    read_answers,
    render,
    require_processor,
    rows_of,
    span,
    with_ids,
)

QUESTION = (
    "Provide a detailed description of the image, covering all visible elements and their interactions, "
    "so as to thoroughly answer any potential questions about the image."
)
"""The question of the paper."""
KEPT = 2**22
"""Bytes of descriptions that are cached."""


def bounded_contrast(main: Tensor, reference: Tensor, power: float) -> Tensor:
    """Return (2 - D) main - (1 - D) reference on the tokens with p >= D max p, row by row.

    Equal rows stay as they are; rows without a common token keep only the best one.
    """
    p, q = main.softmax(-1), reference.softmax(-1)
    apart = ((p + q) * ((p - q).abs() ** power + 1).log2()).sum(dim=-1, keepdim=True) / 2
    weight = 1 - apart
    return mix(main, reference, 1 + weight, -weight, ~(p < apart * p.amax(dim=-1, keepdim=True)))


class CODE(Contrast):
    """Contrast with a description: the model's own, or those of ``using(descriptions=[...])``, one for each row.

    Args:
        power: Exponent of the divergence: ``cd_alpha`` on the official command line, where it defaults to 0.7.
        description_tokens: Most tokens of the model's own description.
        template: Used instead of the processor's chat template to ask for it.
    """

    title = "CODE"
    call_options = ("descriptions",)
    grid = (("power", (0.2, 0.35, 0.5, 0.7, 1.0, 1.4)),)

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        power: float = 0.7,
        description_tokens: int = 512,
        template: str | None = None,
    ) -> None:
        super().__init__(anatomy, processor, alpha=1.0, beta=0.0)
        require_processor("code", processor, "CODE puts words in place of the image")
        self.power = in_range("power", power, 0)
        self.length = int(in_range("description_tokens", description_tokens, 1))
        text = render(anatomy.model, processor, QUESTION, True, template)
        if hasattr(processor, "full_image_sequence"):  # Gemma's blank lines around an image
            text = text.replace(processor.boi_token, processor.full_image_sequence)
        self._question: list[int] = processor.tokenizer(text)["input_ids"]
        self._marks = {*anatomy.image_tokens, *image_tags(anatomy, processor)}
        self._watch, self._kept = Watch(anatomy.model), Memory(KEPT)

    def run(self, **options: Any) -> Run:
        """Return the settings of one call: a description for each row of its prompts."""
        texts = options.get("descriptions")
        if texts is not None and not fits(texts, Sequence[str]):
            raise InputError(
                f"descriptions are {texts!r:.80}, but must be a list of texts",
                hint='one for each row: descriptions=["A dog.", "A cat."]',
            )
        return super().run(**options)

    def rule(self, main: Tensor, reference: Tensor, forward: Pass) -> Tensor:
        """Contrast each row with its own weight and cut."""
        return bounded_contrast(main, reference, self.power)

    def branch_inputs(self, prompt: Prompt) -> dict[str, Any]:
        """Replace the image's columns in the prompt by a description; the image's tags stay."""
        if any(row.images > 1 for row in prompt.rows):
            raise UnsupportedError(
                "a prompt shows several images, and one description stands for one image",
                hint="show one image in a prompt, or use another decoder",
            )
        texts = prompt.run.options.get("descriptions")
        if texts is None:
            texts = self.describe(prompt)
        if len(texts) != len(prompt.rows):
            raise InputError(
                f"{len(texts)} descriptions were given for {len(prompt.rows)} rows",
                hint="give one for each row",
            )
        rows = rows_of(prompt.inputs)
        for row, text in zip(rows, texts, strict=True):
            first, end = span(row, self.anatomy.image_tokens)
            if end:
                row[first:end] = self.processor.tokenizer(text)["input_ids"]
        return padded(rows, prompt_ids(prompt.inputs).device)

    def describe(self, prompt: Prompt) -> list[str]:
        """Return the model's own description for each row of the prompt, cached by picture; empty without an image."""
        if self._watch.changed() is not None:
            self._watch, self._kept = Watch(self.anatomy.model), Memory(KEPT)
        rows = [number for number, row in enumerate(prompt.rows) if row.positions]
        keys = self._keys(prompt.inputs, len(rows))
        found = [self._kept.get(key) for key in keys]
        if None in found:
            found = self.write(self._asked(prompt.inputs, rows))
            for key, text in zip(keys, found, strict=True):
                self._kept.put(key, text, len(text.encode()))
        texts = dict(zip(rows, found, strict=True))
        return [texts.get(row, "") for row in range(len(prompt.rows))]

    def _keys(self, inputs: Mapping[str, Any], count: int) -> list[str]:
        """Return a key for the picture of each row that has one."""
        hashes = []
        for part in picture_parts(self.anatomy, inputs):
            data = part.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
            hashes.append(hashlib.sha256(data + repr(part.shape).encode()).hexdigest())
        return hashes if len(hashes) == count else [f"{'.'.join(hashes)} {row}" for row in range(count)]

    def write(self, inputs: Mapping[str, Any]) -> list[str]:
        """Generate the model's own greedy answers, without any edit and without disturbing the running generation."""
        with beside(self.anatomy):
            output = generate_greedily(self.anatomy.model, inputs, max_new_tokens=self.length)
        ends = end_tokens(self.anatomy.language_model)
        return [answer.text for answer in read_answers(self.processor, output, inputs, ends)]

    def _asked(self, given: Mapping[str, Any], rows: Sequence[int]) -> dict[str, Any]:
        """Put the question in place of the prompt's text, for the rows that have an image."""
        # a question without placeholder (Q-Former families) has its image before the text
        start, end = span(self._question, self._marks)
        ids = rows_of(given)
        asked = [[*self._question[:start], *self._image(ids[row]), *self._question[end:]] for row in rows]
        inputs = with_ids(self.anatomy, forwardable(self.anatomy, given), asked)
        if "qformer_input_ids" in inputs:
            words = self.processor.qformer_tokenizer([QUESTION] * len(rows), return_tensors="pt")
            for name in ("input_ids", "attention_mask"):
                inputs[f"qformer_{name}"] = words[name].to(inputs["input_ids"].device)
        return inputs

    def _image(self, row: Sequence[int]) -> Sequence[int]:
        """Return the image's columns with the tags around them."""
        first, end = span(row, self.anatomy.image_tokens)
        first -= first > 0 and row[first - 1] in self._marks
        end += end < len(row) and row[end] in self._marks
        return row[first:end]
