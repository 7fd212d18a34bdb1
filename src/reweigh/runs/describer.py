"""The describer that is a real model: the base model, ReWEIGH, or any decoder by name. The part that needs torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from reweigh.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image


class ModelDescriber:
    """Answers through a loaded model's or an attachment's ``describe``, drawing from a given seed.

    Args:
        speak: Answers ``(images, prompts, max_new_tokens=..., **options)``.
        options: What every call is given besides.
    """

    def __init__(self, speak: Callable[..., list[str]], **options: Any) -> None:
        self._speak = speak
        self._options = options

    def describe(
        self, images: list[Image], prompts: list[str], *, max_new_tokens: int, seed: int
    ) -> list[str]:
        """Answer a batch."""
        import torch

        torch.manual_seed(seed)
        return self._speak(images, prompts, max_new_tokens=max_new_tokens, **self._options)


def describe_model(model: Any, processor: Any) -> dict[str, Any]:
    """What the record keeps of a loaded model: its identity by content, where and how it computes."""
    from reweigh.families.anatomy import find_anatomy
    from reweigh.families.identity import identify

    weight = next(model.parameters())
    return {
        "identity": identify(find_anatomy(model), processor).to_json(),
        "device": weight.device.type,
        "weights_dtype": str(weight.dtype).removeprefix("torch."),
        "attention": getattr(model.config, "_attn_implementation", None),
    }


def end_tokens(config: Any) -> list[int]:
    """The tokens that end an answer, by a generation config."""
    ends = config.eos_token_id
    return [] if ends is None else (list(ends) if isinstance(ends, list) else [ends])


def make_describer(
    model: Any, processor: Any, decoder: str, options: Mapping[str, Any], *, template: str | None = None
) -> tuple[ModelDescriber, dict[str, Any]]:
    """Make the describer of a named decoder in its authors' regime, and what the record keeps of it."""
    from reweigh.decoders import decoder as make
    from reweigh.decoders.base import GREEDY
    from reweigh.engines.transformers.session import describe

    if decoder == "base":
        if options:
            raise InputError(
                f"the base model has no option {min(options)!r}", hint="leave it out, or name a decoder"
            )
        speak = partial(describe, model, processor)
        return ModelDescriber(speak, template=template), {"decoder": decoder, "generation": dict(GREEDY)}
    attached = make(decoder, model, processor, **options)
    regime = {**getattr(attached.decoder, "regime", GREEDY), **getattr(attached.decoder, "generation", {})}
    told: dict[str, Any] = {"decoder": decoder, "generation": regime}
    # Recalled evidence is bit for bit what would be measured: a cache changes no answer.
    plain = {name: value for name, value in options.items() if name not in ("table", "force", "cache")}
    if decoder == "reweigh":
        plain |= {"beta": attached.beta, "layer": attached.layer}
        told["table_sha256"] = attached.table.fingerprint
    return ModelDescriber(attached.describe, template=template, **regime), told | {"options": plain}
