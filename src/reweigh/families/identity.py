"""Which model this is: a sample of every weight, its adapters, tokenizer and settings, so that a renamed copy is the same.

Two models are the same if no weight and no setting that shapes evidence tells them apart; the float type they are loaded in
does not count (see `families.signature`), nor does their name. `reading_hash` is finer: it also moves with how the model
computes, as cached evidence does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from reweigh.artifacts import sha256_json
from reweigh.families.anatomy import Anatomy
from reweigh.families.settings import flat, image_settings, model_settings
from reweigh.families.signature import BYTES, agree, kind_and_shape, sign
from reweigh.families.weights import active_adapters, adapter_layers, named_weights, sample

HASHED_VALUES = 4096
"""Values of each weight that a reading hash covers; all of a smaller weight."""

NAMED_SETTINGS = 4
"""Differing settings that a message names before it counts the rest."""


@dataclass(frozen=True)
class Identity:
    """What a table, a calibration and a run record of their model.

    Attributes:
        model_id: Name or folder; never compared, since a renamed copy is the same model.
        weights: Signature of each parameter and persistent buffer by name, active adapters included.
        adapters: Active adapters with the scales they have in the layers.
        tokenizer: Hash of the vocabulary.
        images: Settings of the image processor, and its backend.
        config: Settings of the model's configuration that shape what it computes.
    """

    model_id: str
    revision: str | None
    architecture: str
    blocks: int
    vocab_size: int
    weights: dict[str, str]
    adapters: dict[str, list[float]]
    tokenizer: str
    images: dict[str, Any]
    config: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a manifest."""
        return asdict(self)

    def summary(self) -> dict[str, Any]:
        """Plain values for a record that is compared as a whole: the weights are one hash."""
        return {**self.to_json(), "weights": sha256_json(self.weights)}

    def missing(self, record: Mapping[str, Any]) -> list[str]:
        """What a recorded identity lacks for a comparison with this one."""
        mine = self.to_json()
        wanted = [name for name in mine if name not in ("model_id", "revision")]
        optional = {"adapters", *(name for name in ("tokenizer", "images") if not mine[name])}
        return [
            name
            for name in wanted
            if type(record.get(name)) is not type(mine[name]) or not (record[name] or name in optional)
        ]

    def differences(self, record: Mapping[str, Any]) -> list[str]:
        """How this model differs from a recorded one, in words that name both sides; nothing for the same model."""
        return differences(record, self.to_json(), sides=("table", "model"))


def identify(anatomy: Anatomy, processor: Any | None) -> Identity:
    """Describe a loaded model and its processor."""
    weights = {
        name: sign(sample(tensor, BYTES), tuple(tensor.shape))
        for name, tensor in named_weights(anatomy.model)
    }
    return describe(anatomy, processor, weights)


def describe(
    anatomy: Anatomy, processor: Any | None, weights: dict[str, str], *, model_id: str = ""
) -> Identity:
    """The identity of a model whose weights have these signatures."""
    config, model = anatomy.config, anatomy.model
    return Identity(
        model_id=model_id or str(getattr(model, "name_or_path", "") or getattr(config, "_name_or_path", "")),
        revision=getattr(config, "_commit_hash", None),
        architecture=type(model).__name__,
        blocks=len(anatomy.blocks),
        vocab_size=anatomy.vocab_size,
        weights=weights,
        adapters=adapters_of(model),
        tokenizer=tokenizer_hash(processor),
        images=image_settings(processor),
        config=model_settings(config),
    )


def differences(one: Mapping[str, Any], other: Mapping[str, Any], *, sides: tuple[str, str]) -> list[str]:
    """How two recorded identities differ, in words that name both sides.

    A tokenizer or image processor that one side does not have is not compared. Of the configuration, settings that both
    sides have are compared: versions of transformers add others.
    """

    def both(mine: Any, theirs: Any) -> str:
        return f"{sides[0]} {mine}, {sides[1]} {theirs}"

    found = [
        f"{name.replace('_', ' ')}: {both(one[name], other[name])}"
        for name in ("architecture", "blocks", "vocab_size")
        if one[name] != other[name]
    ]
    found += _weight_differences(one["weights"], other["weights"], sides)
    if one["adapters"] != other["adapters"]:
        found.append(f"adapters: {both(*(_adapter_words(side['adapters']) for side in (one, other)))}")
    if one["tokenizer"] != other["tokenizer"] and one["tokenizer"] and other["tokenizer"]:
        found.append(f"tokenizer: {both(one['tokenizer'][:12], other['tokenizer'][:12])}")
    for title, name in (("the image processor's", "images"), ("the configuration's", "config")):
        mine, theirs = dict(flat(one[name])), dict(flat(other[name]))
        keys = mine.keys() & theirs.keys() if name == "config" else mine.keys() | theirs.keys()
        differing = (
            [key for key in sorted(keys) if mine.get(key) != theirs.get(key)] if mine and theirs else []
        )
        found += [
            f"{title} {key}: {both(mine.get(key, 'not set'), theirs.get(key, 'not set'))}"
            for key in differing[:NAMED_SETTINGS]
        ]
        if len(differing) > NAMED_SETTINGS:
            found.append(f"{len(differing) - NAMED_SETTINGS} more of {title} settings")
    return found


def _weight_differences(
    one: Mapping[str, str], other: Mapping[str, str], sides: tuple[str, str]
) -> list[str]:
    """How many parameter tensors only one side has, are packed or shaped in another way, or hold other values."""
    found = []
    for side, mine, theirs in ((sides[0], one, other), (sides[1], other, one)):
        if alone := [name for name in mine if name not in theirs]:
            found.append(f"only the {side} has {len(alone)} parameter tensors, e.g. {alone[0]}")
    differing = [name for name in one if name in other and not agree(one[name], other[name])]
    if differing:
        name = differing[0]
        shapes = [kind_and_shape(side[name]) for side in (one, other)]
        packed = [kind for kind, _ in shapes if not kind.endswith(("float16", "float32"))]
        detail = ""
        if shapes[0][1] != shapes[1][1] or (packed and shapes[0] != shapes[1]):
            detail = ": {} {}, {} {}".format(sides[0], " ".join(shapes[0]), sides[1], " ".join(shapes[1]))
        common = sum(name in other for name in one)
        found.append(f"{len(differing)} of {common} parameter tensors differ, e.g. {name}{detail}")
    return found


def _adapter_words(adapters: Mapping[str, list[float]]) -> str:
    words = [
        f"{name} (scale {', '.join(map(str, scales))})" if scales else name
        for name, scales in adapters.items()
    ]
    return " and ".join(words) or "none"


def adapters_of(model: Any) -> dict[str, list[float]]:
    """The active adapters of a model, each with its distinct scales."""
    found: dict[str, set[float]] = {}
    for _, layer in adapter_layers(model):
        for name, scale in active_adapters(layer).items():
            found.setdefault(name, set()).update(() if scale is None else (float(scale),))
    return {name: sorted(found[name]) for name in sorted(found)}


def tokenizer_hash(processor: Any | None) -> str:
    """Hash of the vocabulary: the same token ids must mean the same pieces."""
    tokenizer = getattr(processor, "tokenizer", processor)
    if tokenizer is None or not hasattr(tokenizer, "get_vocab"):
        return ""
    return sha256_json(sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0])))


def reading_hash(anatomy: Anatomy, processor: Any | None) -> str:
    """Hash of everything loaded that shapes the residual stream of a picture to the last bit.

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
            "template": getattr(processor, "chat_template", None),
            "images": image_settings(processor),
            "torch": torch.__version__,
        }
    )
