"""What a model family is, and every one that deviates from the generic rule: one record each.

To add a family, add its record here; third parties register theirs under the entry-point group ``reweigh.families``,
or in the running process with ``FAMILIES.add(name, record)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from reweigh.families.positions import (
    gemma3_pictures,
    internvl_pictures,
    llava_next_pictures,
    llava_pictures,
    qwen2_5_vl_pictures,
)
from reweigh.method.grids import Picture, Run
from reweigh.registry import Registry

PictureReader = Callable[[Any, Mapping[str, Any], list[list[Run]]], Iterable[tuple[int, Picture]]]
"""From (config, processor outputs, placeholder runs of each row) to each picture of the batch with its placeholder id,
in the order in which the sequence holds them."""


@dataclass(frozen=True, slots=True)
class Family:
    """One model family; a record with only a name follows the generic rule.

    Attributes:
        name: The configuration's ``model_type``.
        pictures: Describes the grids of a batch's pictures; without it, positions have no patch.
        has_controls: Control features (newlines) share the placeholder id, so unread pictures are an error: the
            controls would pass for image content.
        causal: Text after an image is known not to change the states of its positions.
        delegates: ``generate`` delegates to the inner ``language_model``.
        nested_images: The processor expects a list of images for each row.
        bare_prompt: There is no chat template; the processor puts the image tokens before the text itself.
        crops: All views of an image but the last are crops at unknown places.
        refused: Why the family is not supported, if it is not.
    """

    name: str
    _: KW_ONLY
    pictures: PictureReader | None = None
    has_controls: bool = False
    causal: bool = False
    delegates: bool = False
    nested_images: bool = False
    bare_prompt: bool = False
    crops: bool = False
    refused: str | None = None


CROSS_ATTENTION = (
    "feeds the image through cross-attention, so no position of its sequence carries image content"
)
SEPARATE_MASK = "marks image positions by a separate mask and has no image token"

BUILT_IN = (
    Family("llava", pictures=llava_pictures, causal=True),
    Family("vipllava", pictures=llava_pictures),
    Family("mistral3", pictures=llava_pictures),
    Family("llava_next", pictures=llava_next_pictures, has_controls=True, causal=True),
    Family("llava_next_video", pictures=llava_next_pictures, has_controls=True),
    Family("llava_onevision", pictures=llava_next_pictures, has_controls=True),
    Family("qwen2_vl", pictures=qwen2_5_vl_pictures, causal=True),
    Family("qwen2_5_vl", pictures=qwen2_5_vl_pictures, causal=True),
    Family("qwen3_vl", pictures=qwen2_5_vl_pictures),
    Family("qwen3_vl_moe", pictures=qwen2_5_vl_pictures),
    Family("glm4v", pictures=qwen2_5_vl_pictures),
    Family("internvl", pictures=internvl_pictures, causal=True, crops=True),
    Family("gemma3", pictures=gemma3_pictures, causal=True, nested_images=True),
    Family("paligemma", pictures=gemma3_pictures),
    Family("blip-2", causal=True, delegates=True, bare_prompt=True),
    Family("instructblip", causal=True, delegates=True, bare_prompt=True),
    Family("instructblipvideo", delegates=True),
    Family("idefics2", nested_images=True),
    Family("idefics3", nested_images=True),
    Family("smolvlm", nested_images=True),
    Family("mllama", nested_images=True, refused=CROSS_ATTENTION),
    Family("idefics", refused=CROSS_ATTENTION),
    Family("kosmos-2", refused=SEPARATE_MASK),
    Family("kosmos-2.5", refused=SEPARATE_MASK),
    Family("chameleon", refused="masks its image vocabulary in the logits, which changes ranks"),
    Family("git", refused="prepends image features outside the token sequence"),
)

FAMILIES: Registry[Family] = Registry(
    "model family", {family.name: family for family in BUILT_IN}, group="reweigh.families"
)


def family_of(config: Any) -> Family:
    """Return the family of a configuration; the generic record for an unknown ``model_type``."""
    name = str(getattr(config, "model_type", ""))
    return FAMILIES[name] if name in FAMILIES else Family(name)
