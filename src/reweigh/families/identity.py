"""Which model this is: a sample of every weight, its adapters, tokenizer and settings.

`identify` describes a loaded model, `identify_stored` a checkpoint on disk without loading its weights (for engines other
than transformers); `tables.key` compares two such records. `reading_hash` is finer: it also covers how the model
computes, as cached evidence needs. `Watch` notices that a model changed after it was identified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy, find_anatomy, unwrap
from reweigh.families.processor import chat_template_of, tokenizer_of
from reweigh.families.settings import image_settings, model_settings, quick_settings
from reweigh.families.weights import (
    active_adapters,
    adapter_layers,
    is_adapter_layer,
    named_weights,
    plain_name,
    sample,
)
from reweigh.files.artifacts import sha256_json
from reweigh.tables.key import SAMPLES, ModelKey, Sampled, weights_of

SPREAD = 32
"""Values of each weight that are spread over it; a key keeps the first of them."""
HASHED_VALUES = 4096
"""Values of each weight that a reading hash covers; all of a smaller weight."""


def identify(anatomy: Anatomy, processor: Any | None) -> ModelKey:
    """Describe a loaded model and its processor."""
    samples = {name: sampled(tensor) for name, tensor in named_weights(anatomy.model)}
    return describe(anatomy, processor, samples)


def describe(
    anatomy: Anatomy, processor: Any | None, samples: Mapping[str, Sampled], *, model_id: str = ""
) -> ModelKey:
    """Return the identity of a model, from samples of its weights."""
    config, model = anatomy.config, anatomy.model
    return ModelKey(
        model_id=model_id or str(getattr(model, "name_or_path", "") or getattr(config, "_name_or_path", "")),
        revision=getattr(config, "_commit_hash", None),
        architecture=type(model).__name__,
        blocks=len(anatomy.blocks),
        vocab_size=anatomy.vocab_size,
        adapters=adapters_of(model),
        tokenizer=tokenizer_hash(processor),
        images=image_settings(processor),
        config=model_settings(config),
        weights=weights_of(samples),
    )


def sampled(tensor: Tensor) -> Sampled:
    """Return the values of a weight that a key keeps, and how many it has."""
    values = sample(tensor, SPREAD)
    if values.is_quantized:
        values = values.int_repr()
    return values.to(torch.float32).reshape(-1)[:SAMPLES].numpy(), tensor.numel()


def adapters_of(model: Any) -> dict[str, list[float]]:
    """Return the active adapters of a model, each with its distinct scales."""
    found: dict[str, set[float]] = {}
    for _, layer in adapter_layers(model):
        for name, scale in active_adapters(layer).items():
            found.setdefault(name, set()).update(() if scale is None else (float(scale),))
    return {name: sorted(found[name]) for name in sorted(found)}


def tokenizer_hash(processor: Any | None) -> str:
    """Hash of the vocabulary: equal token ids must mean equal pieces."""
    tokenizer = tokenizer_of(processor)
    if tokenizer is None or not hasattr(tokenizer, "get_vocab"):
        return ""
    return sha256_json(sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0])))


def reading_hash(anatomy: Anatomy, processor: Any | None) -> str:
    """Hash of everything that determines the residual stream of a picture to the last bit.

    Finer than an identity: another type, device, attention kernel, chat template or version of torch has another hash.
    """
    weights = hashlib.sha256()
    model = anatomy.model
    for name, tensor in named_weights(model):
        weights.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {tensor.device}".encode())
        values = sample(tensor, HASHED_VALUES).contiguous()
        weights.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha256_json(
        {
            "weights": weights.hexdigest(),
            "adapters": adapters_of(model),
            "attention": getattr(anatomy.config, "_attn_implementation", None),
            "config": anatomy.config.to_json_string(use_diff=False),
            "tokenizer": tokenizer_hash(processor),
            "template": chat_template_of(processor),
            "images": image_settings(processor),
            "torch": torch.__version__,
        }
    )


class Watch:
    """A counter of changes to a model and its processor, cheap enough for every `with`: no weight is read.

    PyTorch counts writes to a tensor. Writes through ``.data``, which it does not count, and weights that accelerate keeps
    elsewhere are not noticed.

    >>> from torch import nn
    >>> layer = nn.Linear(2, 2)
    >>> watch = Watch(layer)
    >>> _ = nn.init.zeros_(layer.bias)
    >>> watch.changed()
    'bias was changed'
    """

    def __init__(self, model: Any, processor: Any = None) -> None:
        self.model = unwrap(model)[0]
        self.processor = processor
        self._parts = self._named_parts()  # keeps them alive: a new one must not get an old one's address
        self._before = self._count()
        self._settings = quick_settings(getattr(self.model, "config", None), processor)

    def changed(self) -> str | None:
        """Return what changed first, as text, or ``None``."""
        now = quick_settings(getattr(self.model, "config", None), self.processor)
        if now != self._settings:
            both = {**self._settings, **now}
            return f"{next(name for name in both if self._settings.get(name) != now.get(name))} was changed"
        for (name, _), before, count in zip(self._parts, self._before, self._count(), strict=True):
            if before != count:
                return f"{_first_changed(name, before, count)} was changed"
        return None

    def _named_parts(self) -> list[tuple[str, Any]]:
        return [(plain_name(name), module) for name, module in self.model.named_modules()]

    def _count(self) -> list[dict[str, Any]]:
        """Return a mark of every tensor, part and choice of adapters of each module."""
        return [_marks(module) for _, module in self._parts]


def _marks(module: Any) -> dict[str, Any]:
    computed = module._non_persistent_buffers_set
    marks: dict[str, Any] = {
        name: (id(one), one.data_ptr(), None if one.is_inference() else one._version)
        for tensors in (module._parameters, module._buffers)
        for name, one in tensors.items()
        if one is not None and name not in computed and not one.is_meta
    }
    if module._modules:
        marks |= {name: id(one) for name, one in module._modules.items()}
    if is_adapter_layer(module):
        marks[ADAPTERS] = active_adapters(module)
    return marks


ADAPTERS = "the choice of adapters"


def _first_changed(part: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    key = next(key for key in {**before, **now} if before.get(key) != now.get(key))
    return f"{ADAPTERS} of {part}" if key == ADAPTERS else f"{part}.{key}" if part else key


WRAPPERS = frozenset({"model", "language_model", "vision_model", "text_model"})
"""Parts of weight names that differ between files and classes."""

HEADS = ("lm_head.weight", "embed_tokens.weight")


def identify_stored(folder: Path, config: Any, processor: Any, *, name: str = "") -> ModelKey:
    """Return the identity that a transformers model loaded from ``folder`` would have.

    Raises:
        UnsupportedError: The folder holds no safetensors, or weights of the model are not among them.
    """
    anatomy = empty_model(config)
    with ExitStack() as files:
        stored = {key: sampled(tensor) for key, tensor in _stored(folder, files)}
    samples, absent = match_names(anatomy, stored)
    if absent:
        raise UnsupportedError(
            f"{len(absent)} weights of {type(anatomy.model).__name__} are missing from the checkpoint's files, "
            f"e.g. {absent[0]}, so a table cannot be matched to it",
            hint="use force if you know that the table belongs to these weights",
        )
    return describe(anatomy, processor, samples, model_id=name or str(folder))


def empty_model(config: Any) -> Anatomy:
    """Return the parts of a model of this configuration, without values."""
    from transformers import AutoModelForImageTextToText

    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    return find_anatomy(model)


def match_names(anatomy: Anatomy, stored: Mapping[str, Sampled]) -> tuple[dict[str, Sampled], list[str]]:
    """Give samples the names that weights have in transformers; list the names without a sample."""
    found: dict[str, Sampled] = {}
    absent = []
    for name in anatomy.model.state_dict():
        own = bare_name(name)
        sampled = stored.get(own)
        if sampled is None and own == HEADS[0]:  # tied: stored once, as the embedding
            sampled = stored.get(HEADS[1])
        if sampled is None:
            absent.append(name)
        else:
            found[name] = sampled
    return found, absent


def _stored(folder: Path, files: ExitStack) -> Iterator[tuple[str, Tensor]]:
    from safetensors import safe_open

    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise UnsupportedError(
            f"{folder} has no safetensors, so a table cannot be matched to its weights",
            hint="convert the checkpoint, or use force if you know that the table belongs to it",
        )
    for path in paths:
        opened = files.enter_context(safe_open(path, framework="pt"))
        for name in opened.keys():  # noqa: SIM118  # not a mapping
            yield bare_name(name), opened.get_tensor(name)


def bare_name(name: str) -> str:
    """Return the name of a weight without the parts that only wrap."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)
