"""lmms-eval's chat model for Hugging Face checkpoints, with a decoder of ours attached to it.

lmms-eval loads the model, writes prompts, batches them and calls ``generate``. Two things in lmms-eval 0.7.3 do not work
with transformers 5 and are patched from outside, for this model only: it falls back to a class without a head, and it
passes empty lists of media to processors that refuse them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lmms_eval.models.chat import huggingface
from transformers import AutoModelForImageTextToText

from reweigh.errors import InputError
from reweigh.rivals import DECODERS
from reweigh.rivals import decoder as make

MEDIA = ("images", "videos", "audios")


class ReweighModel(huggingface.Huggingface):
    """Any of lmms-eval's tasks with ReWEIGH (or a rival) decoding.

    Args:
        table: Reference table: folder or Hub repository. Needed for ``reweigh``.
        beta: Maximum penalty; the tuned or published one if not given.
        layer: 0-based block; the tuned or published one if not given.
        decoder: ``reweigh``, or the name of another decoder with its own defaults.
        force: Use a table although its model, tokenizer or dtype seems to be another.
        base: Arguments of lmms-eval's ``huggingface`` model (``pretrained``, ``device_map``, ...).
    """

    is_simple = False
    processor: Any

    def __init__(
        self,
        table: str | None = None,
        beta: float | None = None,
        layer: int | None = None,
        decoder: str = "reweigh",
        force: bool = False,
        **base: Any,
    ) -> None:
        needs_table = DECODERS[decoder].needs_table
        if needs_table and table is None:
            raise InputError(
                "the model reweigh needs a reference table",
                hint="--model_args pretrained=...,table=FOLDER; see reweigh calibrate --help",
            )
        if not torch.cuda.is_available():
            base = {**base, "device": "cpu", "device_map": "cpu"}
        with _class_with_head():
            super().__init__(**base)
        options: dict[str, Any] = {}
        if needs_table:
            options = {
                "table": table,
                "beta": None if beta is None else float(beta),
                "layer": layer,
                "force": bool(force),
            }
        self.session = make(decoder, self.model, self.processor, **options)
        self.processor = _WithoutEmptyMedia(self.processor)

    def generate_until(self, requests: list[Any]) -> Any:
        """Answer requests as lmms-eval does, with the decoder attached."""
        with self.session:
            return super().generate_until(requests)


@contextmanager
def _class_with_head() -> Iterator[None]:
    """Make lmms-eval fall back to the class that can generate, instead of the one without a head."""
    bare = huggingface.AutoModel
    huggingface.AutoModel = AutoModelForImageTextToText
    try:
        yield
    finally:
        huggingface.AutoModel = bare


class _WithoutEmptyMedia:
    """A processor that never receives empty lists of media."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        present = {name: value for name, value in kwargs.items() if name not in MEDIA or value}
        return self._processor(*args, **present)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)
