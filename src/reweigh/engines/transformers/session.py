"""A decoder tied to one model: a context in which the model's own ``generate`` follows the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from reweigh.engines.transformers.tap import Listener, Tap
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.images import read_image

if TYPE_CHECKING:
    from PIL.Image import Image
    from typing_extensions import Self


class Attachable(Listener, Protocol):
    """A listener that knows its model's anatomy."""

    anatomy: Anatomy


class Attachment:
    """Edits what the model generates while its ``with`` block is open; outside, the model is as it was."""

    def __init__(self, model: Any, processor: Any, decoder: Attachable) -> None:
        self.model = model
        self.processor = processor
        self.decoder: Any = decoder
        self._tap = Tap(decoder.anatomy, decoder)

    def __enter__(self) -> Self:
        self._tap.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._tap.__exit__(*exc_info)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """``model.generate`` with this decoder, and nothing else changed."""
        with self:
            return self.model.generate(*args, **kwargs)

    def describe(
        self,
        image: str | Path | bytes | Image | Sequence[str | Path | bytes | Image],
        prompt: str | Sequence[str] = DESCRIBE,
        *,
        max_new_tokens: int = 512,
        template: str | None = None,
        **generate: Any,
    ) -> Any:
        """Describe a picture, or a list of pictures in one batch.

        Greedy unless told otherwise, here or by what the method itself needs (beams, sampling).

        Returns:
            A text, or a list of texts for a list of pictures.
        """
        pictures, prompts = asked(image, prompt)
        options = {**getattr(self.decoder, "generation", {}), **generate}
        options |= {"max_new_tokens": max_new_tokens, "template": template}
        texts = self._describe(pictures, prompts, **options)
        return texts if isinstance(image, list | tuple) else texts[0]

    def _describe(
        self, pictures: list[Image], prompts: list[str], *, template: str | None, **options: Any
    ) -> list[str]:
        inputs = prepare(self.model, self.processor, pictures, prompts, template=template)
        with self._serving(pictures, inputs), self:
            return answer(self.model, self.processor, inputs, **options)

    def _serving(self, pictures: list[Image], inputs: dict[str, Any]) -> AbstractContextManager[None]:
        """What is at hand while these pictures are described; a method with a memory brings it here."""
        return nullcontext()


def describe(
    model: Any,
    processor: Any,
    image: Any,
    prompt: str | Sequence[str] = DESCRIBE,
    *,
    max_new_tokens: int = 512,
    template: str | None = None,
    **generate: Any,
) -> Any:
    """Describe pictures with whatever is (or is not) attached to the model at the moment."""
    pictures, prompts = asked(image, prompt)
    inputs = prepare(model, processor, pictures, prompts, template=template)
    texts = answer(model, processor, inputs, max_new_tokens=max_new_tokens, **generate)
    return texts if isinstance(image, list | tuple) else texts[0]


def prepare(
    model: Any, processor: Any, pictures: Sequence[Image], prompts: Sequence[str], *, template: str | None
) -> dict[str, Any]:
    """The model's inputs for pictures and prompts."""
    if processor is None:
        raise InputError("describing a picture needs a processor", hint="attach(model, processor, ...)")
    return build_inputs(model, processor, pictures, prompts, template=template)


def answer(model: Any, processor: Any, inputs: dict[str, Any], **generate: Any) -> list[str]:
    """What the model says to prepared inputs, greedily unless told otherwise."""
    options: dict[str, Any] = {"do_sample": False, **generate}
    if not options["do_sample"]:
        options = {"temperature": None, "top_p": None, "top_k": None, **options}
    with torch.no_grad():
        output = model.generate(**inputs, **options)
    sequences = getattr(output, "sequences", output)
    return [text.strip() for text in _decode(processor, sequences, inputs["input_ids"].shape[1])]


def asked(image: Any, prompt: str | Sequence[str]) -> tuple[list[Image], list[str]]:
    """One picture or many, each with its prompt."""
    pictures = [read_image(one) for one in (image if isinstance(image, list | tuple) else [image])]
    return pictures, [prompt] * len(pictures) if isinstance(prompt, str) else list(prompt)


def _decode(processor: Any, sequences: Tensor, prompt_length: int) -> list[str]:
    return list(processor.batch_decode(sequences[:, prompt_length:], skip_special_tokens=True))
