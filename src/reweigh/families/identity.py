"""Which model is loaded: a sample of every weight, its adapters, tokenizer and settings.

`tables.identity` compares two such records. `reading_hash` is finer: it also moves with how the model computes,
as cached evidence does. `Watch` notices that a model changed after it was identified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from reweigh.families.anatomy import Anatomy, unwrap
from reweigh.families.processor import chat_template_of, tokenizer_of
from reweigh.families.settings import current_settings, image_settings, model_settings
from reweigh.families.weights import (
    active_adapters,
    adapter_layers,
    named_weights,
    plain_name,
    sample,
    watched_weights,
)
from reweigh.files.artifacts import sha256_json
from reweigh.tables.identity import Identity
from reweigh.tables.signature import BYTES, Sampled, signatures

HASHED_VALUES = 4096
"""Values of each weight that a reading hash covers; all of a smaller weight."""


def identify(anatomy: Anatomy, processor: Any | None) -> Identity:
    """Describe a loaded model and its processor."""
    samples = {
        name: (sample(tensor, BYTES), tuple(tensor.shape)) for name, tensor in named_weights(anatomy.model)
    }
    return describe(anatomy, processor, samples)


def describe(
    anatomy: Anatomy, processor: Any | None, samples: Mapping[str, Sampled], *, model_id: str = ""
) -> Identity:
    """The identity of a model, from samples of its weights."""
    config, model = anatomy.config, anatomy.model
    return Identity(
        model_id=model_id or str(getattr(model, "name_or_path", "") or getattr(config, "_name_or_path", "")),
        revision=getattr(config, "_commit_hash", None),
        architecture=type(model).__name__,
        blocks=len(anatomy.blocks),
        vocab_size=anatomy.vocab_size,
        adapters=adapters_of(model),
        tokenizer=tokenizer_hash(processor),
        images=image_settings(processor),
        config=model_settings(config),
        weights=signatures(samples),
    )


def adapters_of(model: Any) -> dict[str, list[float]]:
    """The active adapters of a model, each with its distinct scales."""
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
    """Remembers a model and its processor; ``changed`` reports whether they have changed.

    Cheap enough for once a request: PyTorch counts writes to a tensor. Writes through ``.data``, which it does not count,
    and weights that accelerate keeps elsewhere are not noticed.

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
        self._kept = [
            tensor for _, tensor in watched_weights(self.model)
        ]  # their addresses must not come again
        self._marks = self._now()

    def changed(self) -> str | None:
        """What changed first, as text, or ``None``."""
        before, now = self._marks, self._now()
        name = next((name for name in {**before, **now} if before.get(name) != now.get(name)), None)
        return None if name is None else f"{name} was changed"

    def _now(self) -> dict[str, Any]:
        """A mark of every setting, adapter and weight, under names that tell what it is."""
        marks = current_settings(getattr(self.model, "config", None), self.processor)
        for path, layer in adapter_layers(self.model):
            marks[f"the choice of adapters of {plain_name(path)}"] = active_adapters(layer)
        for name, tensor in watched_weights(self.model):
            version = None if tensor.is_inference() else tensor._version
            marks[name] = id(tensor), tensor.data_ptr(), tensor.dtype, version
        return marks
