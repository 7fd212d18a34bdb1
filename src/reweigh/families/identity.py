"""Who a loaded model and its tokenizer are, told by content so that a renamed copy is still the same."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import torch

from reweigh.artifacts import sha256_json
from reweigh.families.anatomy import Anatomy

SAMPLED_ROWS = 64
SAMPLED_WEIGHTS = 32


@dataclass(frozen=True)
class Identity:
    """What a reference table records of the model it was made with.

    ``weights`` hashes the final norm and a spread of head rows, rounded to bfloat16, so that one checkpoint
    loaded in float32 or bfloat16 has one identity while another fine-tune has another. float16 keeps it too,
    unless it has to round what the checkpoint holds.
    """

    model_id: str
    revision: str | None
    architecture: str
    blocks: int
    vocab_size: int
    weights: str
    tokenizer: str

    def to_json(self) -> dict[str, Any]:
        """Plain values for a manifest."""
        return asdict(self)


def identify(anatomy: Anatomy, processor: Any | None) -> Identity:
    """Describe a loaded model and its tokenizer."""
    config = anatomy.config
    return Identity(
        model_id=str(getattr(anatomy.model, "name_or_path", "") or getattr(config, "_name_or_path", "")),
        revision=getattr(config, "_commit_hash", None),
        architecture=type(anatomy.model).__name__,
        blocks=len(anatomy.blocks),
        vocab_size=anatomy.vocab_size,
        weights=_weights_hash(anatomy),
        tokenizer=tokenizer_hash(processor),
    )


def tokenizer_hash(processor: Any | None) -> str:
    """Hash of the vocabulary: the same token ids must mean the same pieces."""
    tokenizer = getattr(processor, "tokenizer", processor)
    if tokenizer is None or not hasattr(tokenizer, "get_vocab"):
        return ""
    return sha256_json(sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0])))


def _weights_hash(anatomy: Anatomy) -> str:
    digest = hashlib.sha256(type(anatomy.model).__name__.encode())
    samples = [parameter.detach() for parameter in anatomy.norm.parameters()]
    weight = getattr(anatomy.head, "weight", None)
    if weight is not None and torch.is_floating_point(weight):
        step = max(1, weight.shape[0] // SAMPLED_ROWS)
        samples.append(weight.detach()[::step][:SAMPLED_ROWS])
    for sample in samples:
        digest.update(sample.to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes())
    return digest.hexdigest()


def reading_hash(anatomy: Anatomy, processor: Any | None) -> str:
    """Hash of everything loaded that shapes the residual stream of a picture: a sample of every weight, how it computes.

    Finer than an identity: another fine-tune of any part, another type, device, configuration or attention kernel,
    other image settings or another chat template have another hash.
    """
    weights = hashlib.sha256()
    model = anatomy.model
    for name, parameter in chain(model.named_parameters(), model.named_buffers()):
        flat = parameter.detach().flatten()
        sample = flat[:: max(1, flat.numel() // SAMPLED_WEIGHTS)].cpu()
        weights.update(f"{name} {parameter.dtype} {tuple(parameter.shape)} {parameter.device.type}".encode())
        weights.update(sample.contiguous().view(torch.uint8).numpy().tobytes())
    pictures = getattr(processor, "image_processor", None)
    return sha256_json(
        {
            "weights": weights.hexdigest(),
            "attention": getattr(anatomy.config, "_attn_implementation", None),
            "config": anatomy.config.to_json_string(use_diff=False),
            "tokenizer": tokenizer_hash(processor),
            "template": getattr(processor, "chat_template", None),
            "pictures": None if pictures is None else pictures.to_json_string(),
            "torch": torch.__version__,
        }
    )
