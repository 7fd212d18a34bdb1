"""Every family that deviates from the generic rule, one record each.

To add a family, add its record here; third parties register theirs under the entry-point group ``reweigh.families``,
or in the running process with ``FAMILIES.add(name, record)``.
"""

from __future__ import annotations

from typing import Any

from reweigh.families import gemma3, internvl, llava, llava_next, qwen2_5_vl
from reweigh.families.family import Family
from reweigh.registry import Registry

CROSS_ATTENTION = (
    "feeds the image through cross-attention, so no position of its sequence carries image content"
)
SEPARATE_MASK = "marks image positions by a separate mask and has no image token"

BUILT_IN = (
    Family("llava", pictures=llava.pictures, causal=True),
    Family("vipllava", pictures=llava.pictures),
    Family("mistral3", pictures=llava.pictures),
    Family("llava_next", pictures=llava_next.pictures, has_controls=True, causal=True),
    Family("llava_next_video", pictures=llava_next.pictures, has_controls=True),
    Family("llava_onevision", pictures=llava_next.pictures, has_controls=True),
    Family("qwen2_vl", pictures=qwen2_5_vl.pictures, causal=True),
    Family("qwen2_5_vl", pictures=qwen2_5_vl.pictures, causal=True),
    Family("qwen3_vl", pictures=qwen2_5_vl.pictures),
    Family("qwen3_vl_moe", pictures=qwen2_5_vl.pictures),
    Family("glm4v", pictures=qwen2_5_vl.pictures),
    Family("internvl", pictures=internvl.pictures, causal=True, crops=True),
    Family("gemma3", pictures=gemma3.pictures, causal=True, nested_images=True),
    Family("paligemma", pictures=gemma3.pictures),
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
    """The family of a configuration; the generic record for an unknown ``model_type``."""
    name = str(getattr(config, "model_type", ""))
    return FAMILIES[name] if name in FAMILIES else Family(name)
