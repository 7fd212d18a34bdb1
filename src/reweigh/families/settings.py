"""Settings that affect evidence: those of the configuration, and how the processor turns pictures into pixels.

Used by identities, and to notice changes of a loaded model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from reweigh.tables.key import flat

NOT_IMAGE_SETTINGS = frozenset(
    {
        "image_processor_type",
        "feature_extractor_type",
        "processor_class",
        "auto_map",
        "chat_template",
        "device",
        "return_tensors",
    }
)

# fmt: off
NOT_MODEL_SETTINGS = frozenset({
    "architectures", "attention_dropout", "attn_implementation", "auto_map", "bos_token_id", "chunk_size_feed_forward",
    "dtype", "eos_token_id", "hidden_dropout", "id2label", "initializer_factor", "initializer_range",
    "is_encoder_decoder", "label2id", "name_or_path", "output_attentions", "output_hidden_states", "pad_token_id",
    "pretraining_tp", "problem_type", "quantization_config", "return_dict", "tie_word_embeddings", "torch_dtype",
    "transformers_version", "use_cache",
})
# fmt: on
"""Settings of a configuration about its origin, training, storage or execution, not about what it computes."""

SCALARS = (bool, int, float, str)


def model_settings(config: Any) -> dict[str, Any]:
    """Return the settings of a configuration that affect the computation, as JSON."""
    return _plain(_without(config.to_dict(), NOT_MODEL_SETTINGS))


def image_settings(processor: Any | None) -> dict[str, Any]:
    """Return how pictures become pixels: size, crop, mean, resampling, patches, and the backend."""
    images = getattr(processor, "image_processor", None)
    if processor is None or images is None:
        return {}
    kinds = [kind.__name__ for kind in type(images).__mro__]
    backend = next(
        (name.removesuffix("Backend").lower() for name in kinds if name.endswith("Backend")), kinds[0]
    )
    whole = processor.to_dict() if hasattr(processor, "to_dict") else {}
    simple = {name: value for name, value in whole.items() if isinstance(value, SCALARS)}
    own = images.to_dict() if hasattr(images, "to_dict") else vars(images)
    return _plain(_without({**simple, **own, "backend": backend}, NOT_IMAGE_SETTINGS))


def quick_settings(config: Any | None, processor: Any | None) -> dict[str, str]:
    """Return all settings that affect evidence as text, under readable names; fast enough for every `with`."""
    nested = {name: part for name, part in _attributes(config).items() if hasattr(part, "to_dict")}
    images = getattr(processor, "image_processor", None)
    kernels = [getattr(part, "_attn_implementation", None) for part in (config, *nested.values())]
    scalars = {name: value for name, value in _attributes(processor).items() if isinstance(value, SCALARS)}
    found = {
        "the image processor's class": type(images).__qualname__,
        "the attention kernel": repr(kernels),
        "the processor's settings": repr(scalars),
    }
    for title, part, ignored in (
        ("the configuration's ", config, NOT_MODEL_SETTINGS),
        *((f"the configuration's {name}.", part, NOT_MODEL_SETTINGS) for name, part in nested.items()),
        ("the image processor's ", images, NOT_IMAGE_SETTINGS),
    ):
        own = {
            name: value
            for name, value in _attributes(part).items()
            if name not in ignored and not name.startswith("_") and not hasattr(value, "to_dict")
        }
        found |= {
            name: setting_text(value) if hasattr(value, "__array__") else repr(value)
            for name, value in flat(own, title)
        }
    return found


def _attributes(part: Any) -> dict[str, Any]:
    return getattr(part, "__dict__", {})


def setting_text(value: Any) -> str:
    """Return text for a setting that JSON cannot hold: arrays by hash, functions and classes by name."""
    if hasattr(value, "detach"):
        numbers = value.detach().cpu()  # NumPy has no bfloat16
        value = numbers.float().numpy() if numbers.is_floating_point() else numbers.numpy()
    if hasattr(value, "__array__") and value.ndim:  # a single number is written as itself
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()[:16]}"
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)


def _without(settings: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """Drop the given names, private ones and unset values from settings, at every depth."""
    return {
        str(name): _without(value, names) if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if name not in names and not str(name).startswith("_") and value is not None
    }


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=setting_text))
    return plain
