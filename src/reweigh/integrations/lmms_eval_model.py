"""lmms-eval's chat models for Hugging Face checkpoints, with a decoder of ours attached to them.

lmms-eval loads the model, writes prompts, batches them and calls ``generate``. Three things in lmms-eval 0.7.3 are patched
from outside, for this model only: most of its models load in bfloat16 whatever the checkpoint has; its ``huggingface`` model
falls back to a class without a head, and passes empty lists of media to processors that refuse them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from lmms_eval.api.model import lmms
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedModel

from reweigh.errors import InputError, ReweighError, require_known
from reweigh.families.load import DTYPES, fast_dtype
from reweigh.rivals import DECODERS
from reweigh.rivals import decoder as make

MEDIA = ("images", "videos", "audios")
BASES = {
    "huggingface": "Huggingface",
    "llava_hf": "LlavaHf",
    "qwen2_5_vl": "Qwen2_5_VL",
    "qwen3_vl": "Qwen3_VL",
    "internvl_hf": "InternVLHf",
}
"""lmms-eval's chat models that a decoder is attached to, and their classes."""
PROCESSORS = ("processor", "_image_processor")
"""Where they keep the processor."""


class ReweighModel(lmms):
    """Any of lmms-eval's tasks with ReWEIGH (or a rival) decoding.

    Args:
        base: The model of lmms-eval that writes the prompts, one of ``BASES``.
        table: Reference table: folder or Hub repository. Needed for ``reweigh``.
        beta: Maximum penalty; the tuned or published one if not given.
        layer: 0-based block; the tuned or published one if not given.
        decoder: ``reweigh``, or the name of another decoder with its own defaults.
        force: Use a table although its model, tokenizer or dtype seems to be another.
        dtype: As for ``reweigh.load``: "auto" is the checkpoint's own.
        arguments: Arguments of the base (``pretrained``, ``device_map``, ...).

    Raises:
        SystemExit: Something of ours cannot be used. lmms-eval catches other errors and exits with 0.
    """

    is_simple = False
    session: Any

    def __new__(cls, *_: Any, base: str = "huggingface", **__: Any) -> Any:
        """Make an instance of this class and the base's."""
        with _refusing():
            require_known("base model of lmms-eval", [base], BASES)
        module = import_module(f"lmms_eval.models.chat.{base}")
        return object.__new__(type(cls.__name__, (cls, getattr(module, BASES[base])), {}))

    def __init__(
        self,
        table: str | None = None,
        beta: float | None = None,
        layer: int | None = None,
        decoder: str = "reweigh",
        force: bool = False,
        dtype: str = "auto",
        base: str = "huggingface",
        **arguments: Any,
    ) -> None:
        with _refusing():
            needs_table = DECODERS[decoder].needs_table
            if needs_table and table is None:
                raise InputError(
                    "the model reweigh needs a reference table",
                    hint="--model_args pretrained=...,table=FOLDER; see reweigh calibrate --help",
                )
            if dtype != "auto" and dtype not in DTYPES:
                raise InputError(f"dtype {dtype!r} is unknown", hint=f"one of auto, {', '.join(DTYPES)}")
        if not torch.cuda.is_available():
            arguments = {**arguments, "device": "cpu", "device_map": "cpu"}
        with _class_with_head(), _loading_in(dtype):
            super().__init__(**arguments)
        options: dict[str, Any] = {}
        if needs_table:
            options = {
                "table": table,
                "beta": None if beta is None else float(beta),
                "layer": layer,
                "force": bool(force),
            }
        place = next(name for name in PROCESSORS if hasattr(self, name))
        with _refusing():
            self.session = make(decoder, self.model, getattr(self, place), **options)
        if base == "huggingface":
            setattr(self, place, _WithoutEmptyMedia(getattr(self, place)))

    def generate_until(self, requests: list[Any]) -> Any:
        """Answer requests as the base does, with the decoder attached."""
        with self.session, _refusing_to_generate(self.model):
            return super().generate_until(requests)


@contextmanager
def _refusing() -> Iterator[None]:
    """End the program with an error of ours, which lmms-eval would report and then exit with 0."""
    try:
        yield
    except ReweighError as error:
        raise SystemExit(f"reweigh: {error}") from error


@contextmanager
def _refusing_to_generate(model: Any) -> Iterator[None]:
    """End the program with an error of ours; some of lmms-eval's models would count an empty answer instead."""
    before = vars(model).get("generate")
    original = model.generate

    def generate(*args: Any, **kwargs: Any) -> Any:
        with _refusing():
            return original(*args, **kwargs)

    model.generate = generate
    try:
        yield
    finally:
        if before is None:
            del model.generate
        else:
            model.generate = before


@contextmanager
def _loading_in(dtype: str) -> Iterator[None]:
    """Make transformers load models in a type, whatever lmms-eval asks for."""
    original = vars(PreTrainedModel)["from_pretrained"]

    def load(cls: Any, name: Any, *args: Any, **options: Any) -> Any:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        named = {key: options[key] for key in ("revision", "trust_remote_code") if key in options}
        chosen = fast_dtype(name, device, **named) if dtype == "auto" else DTYPES[dtype]
        if chosen == "auto":  # lmms-eval's type stands in the configuration by now
            config = AutoConfig.from_pretrained(name, **named)
            chosen = config.dtype or config.get_text_config().dtype or torch.float32
        options = {key: value for key, value in options.items() if key != "torch_dtype"}
        return original.__func__(cls, name, *args, **{**options, "dtype": chosen})

    PreTrainedModel.from_pretrained = classmethod(load)
    try:
        yield
    finally:
        PreTrainedModel.from_pretrained = original


@contextmanager
def _class_with_head() -> Iterator[None]:
    """Make lmms-eval fall back to the class that can generate, instead of the one without a head."""
    huggingface: Any = import_module("lmms_eval.models.chat.huggingface")
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
