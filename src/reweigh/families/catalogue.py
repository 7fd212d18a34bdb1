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
        native: Vocabulary sizes of the language backbones it is built on; see ``native_rows``.
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
    native: tuple[int, ...] = ()
    refused: str | None = None


CROSS_ATTENTION = (
    "feeds the image through cross-attention, so no position of its sequence carries image content"
)
SEPARATE_MASK = "marks image positions by a separate mask and has no image token"

LLAMA = 32_000
"""LLaMA, Vicuna and Mistral 7B: ``vocab_size`` of lmsys/vicuna-7b-v1.5; LLaVA's converted head has 32,064 rows."""
YI = 64_000
"""``vocab_size`` of NousResearch/Nous-Hermes-2-Yi-34B, the backbone of LLaVA-NeXT-34B."""
LLAMA_3 = 128_256
"""``vocab_size`` of meta-llama/Meta-Llama-3-8B-Instruct, the backbone of LLaVA-NeXT-8B; its head has 128,320 rows."""
INTERNLM_2_5 = 92_544
"""``vocab_size`` of internlm/internlm2_5-7b-chat and -20b-chat; InternVL2.5-8B and 26B add nine tokens to it."""
QWEN_2_5_TOKENS = 151_665
"""Tokens of Qwen/Qwen2.5's tokenizer, to which InternVL2.5 cuts that head before it adds nine of its own."""
GEMMA_3 = 262_144
"""Tokens of google/gemma-3's tokenizer for text; its image token has the id 262,144, its head 262,208 rows."""

MOST_ADDED = 1024
"""A head with more rows than this beyond a known vocabulary has another backbone."""

# Qwen2.5-VL adds no row: its head has the rows of Qwen2.5, whose tokenizer holds the vision tokens (152,064 for 7B).
BUILT_IN = (
    Family("llava", pictures=llava_pictures, causal=True, native=(LLAMA,)),
    Family("vipllava", pictures=llava_pictures),
    Family("mistral3", pictures=llava_pictures),
    Family(
        "llava_next",
        pictures=llava_next_pictures,
        has_controls=True,
        causal=True,
        native=(LLAMA, YI, LLAMA_3),
    ),
    Family("llava_next_video", pictures=llava_next_pictures, has_controls=True),
    Family("llava_onevision", pictures=llava_next_pictures, has_controls=True),
    Family("qwen2_vl", pictures=qwen2_5_vl_pictures, causal=True),
    Family("qwen2_5_vl", pictures=qwen2_5_vl_pictures, causal=True),
    Family("qwen3_vl", pictures=qwen2_5_vl_pictures),
    Family("qwen3_vl_moe", pictures=qwen2_5_vl_pictures),
    Family("qwen3_5", pictures=qwen2_5_vl_pictures),
    Family("qwen3_5_moe", pictures=qwen2_5_vl_pictures),
    Family("qwen3_omni_moe_thinker", pictures=qwen2_5_vl_pictures),
    Family("glm4v", pictures=qwen2_5_vl_pictures),
    Family("glm4v_moe", pictures=qwen2_5_vl_pictures),
    Family("glm46v", pictures=qwen2_5_vl_pictures),
    Family("granite4_vision", pictures=llava_next_pictures, has_controls=True),
    Family(
        "internvl",
        pictures=internvl_pictures,
        causal=True,
        crops=True,
        native=(INTERNLM_2_5, QWEN_2_5_TOKENS),
    ),
    Family("gemma3", pictures=gemma3_pictures, causal=True, nested_images=True, native=(GEMMA_3,)),
    Family("paligemma", pictures=gemma3_pictures),
    Family("blip-2", causal=True, delegates=True, bare_prompt=True),
    Family("instructblip", causal=True, delegates=True, bare_prompt=True, native=(LLAMA,)),
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
    Family("blip", refused=CROSS_ATTENTION),
    Family(
        "qwen4_exp",
        refused="keeps four residual streams, so there is no single one to read through its norm and head",
    ),
    Family("diffusion_gemma", refused="writes whole blocks of text by diffusion, not token after token"),
    Family("pi0", refused="predicts the motions of a robot, not text"),
    Family("evolla", refused="reads proteins, not images"),
)

FAMILIES: Registry[Family] = Registry(
    "model family", {family.name: family for family in BUILT_IN}, group="reweigh.families"
)


def family_of(config: Any) -> Family:
    """Return the family of a configuration; the generic record for an unknown ``model_type``."""
    name = str(getattr(config, "model_type", ""))
    return FAMILIES[name] if name in FAMILIES else Family(name)


def native_rows(family: Family, rows: int) -> int:
    """Return how many rows of a head with ``rows`` are the language backbone's own: those that take part in ranks.

    The rest was added for the vision-language model: image tokens, and padding to a round number. All rows are native where
    no known vocabulary fits.

    Examples:
        >>> native_rows(FAMILIES["llava"], 32064), native_rows(FAMILIES["qwen2_5_vl"], 152064)
        (32000, 152064)
    """
    return max((size for size in family.native if size <= rows <= size + MOST_ADDED), default=rows)
