"""Which families mlx-vlm computes as transformers does, and how the others differ.

mlx-vlm reimplements every model. Where its version ignores a setting of the checkpoint or computes something else, the
model's identity records that, so a table passes between the engines only where they compute the same.
``reweigh doctor MODEL --engine mlx`` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reweigh.errors import UnsupportedError
from reweigh.families.catalogue import family_of

TANH = "gelu_pytorch_tanh"
ROPE = "text_config.rope_parameters.rope_theta"
READ = {
    "text_config.rms_norm_eps": ("text_config", "rms_norm_eps"),
    "vision_config.layer_norm_eps": ("vision_config", "layer_norm_eps"),
    ROPE: ("text_config", "rope_theta"),
}
"""Settings that mlx-vlm reads under its own names, with its own defaults where a checkpoint has other names."""


@dataclass(frozen=True)
class Port:
    """mlx-vlm's version of a family.

    Attributes:
        fixed: Settings that it ignores, each with the value it uses instead.
        apart: What it computes differently whatever the settings say; such a family has its own tables.
        refused: Why the family is not served.
    """

    fixed: Mapping[str, Any] = field(default_factory=dict)
    apart: str | None = None
    refused: str | None = None


def _acts(vision: str, **more: Any) -> dict[str, Any]:
    plain = {"text_config.hidden_act": "silu", "text_config.rope_parameters.rope_type": "default"}
    return {**plain, "vision_config.hidden_act": vision, **more}


PORTS = {
    "llava": Port(_acts("quick_gelu", projector_hidden_act="gelu")),
    "qwen2_5_vl": Port(_acts("silu")),
    "idefics3": Port(_acts(TANH)),
    "smolvlm": Port(_acts(TANH)),
    "internvl": Port(_acts(TANH, projector_hidden_act=TANH)),
    "gemma3": Port(apart="an image's positions do not see each other"),
    "llava_next": Port(refused="mlx-vlm puts its image features elsewhere than at the prompt's placeholders"),
}
"""By ``model_type`` of the checkpoint's configuration."""


def port_of(config: Any) -> Port:
    """Return mlx-vlm's version of a configuration's family, or refuse it with the reason."""
    name = str(getattr(config, "model_type", ""))
    port = PORTS.get(name)
    reason = family_of(config).refused or ("it has not been compared" if port is None else port.refused)
    if port is None or reason is not None:
        served = [known for known, one in PORTS.items() if one.refused is None]
        raise UnsupportedError(
            f"reweigh does not serve {name or 'this model'} on MLX: {reason}",
            hint=f"served: {', '.join(served)}; use the transformers engine for other families",
        )
    return port


def computed_settings(port: Port, own: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that mlx-vlm really uses; ``own`` is its configuration."""
    for path, value in port.fixed.items():
        _replace(settings, path, value)
    for path, (part, name) in READ.items():
        _replace(settings, path, getattr(getattr(own, part, None), name, None))
    return settings


def _replace(settings: dict[str, Any], path: str, value: Any) -> None:
    """Replace a setting if the checkpoint has it; others are not compared."""
    *parts, name = path.split(".")
    for part in parts:
        settings = settings.get(part) or {}
    if value is not None and name in settings:
        settings[name] = value


def computed_images(images: dict[str, Any]) -> dict[str, Any]:
    """Return image settings under transformers' names; mlx-vlm's processor for Qwen agrees with the PIL one to 1e-6."""
    if images.get("backend") != "Qwen3VLImageProcessor":
        return images
    size = {"shortest_edge": images.pop("min_pixels"), "longest_edge": images.pop("max_pixels")}
    return {**images, "size": size, "do_resize": True, "resample": 3, "backend": "pil"}
