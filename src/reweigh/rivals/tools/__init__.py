"""What a rival's file imports: the decoder and its passes, second branches, earlier layers, edits inside the model.

``contrast``: a decoder with a second branch, and the formulas of contrast and plausibility cut; ``branch``: the branch's
passes; ``inputs``: its prompt. ``layers``: earlier layers read through the head. ``edits``: edits of the residual stream, of
MLPs and of attention. ``vectors``: what is learned from labeled answers. ``options``: the check of a decoder's options.
"""

from __future__ import annotations

from reweigh.engines.base import GREEDY, SAMPLING, Decoder, Pass, Prompt, in_range
from reweigh.engines.run import Run, suspended
from reweigh.engines.transformers.answers import end_tokens, read_answers
from reweigh.engines.transformers.arguments import TOKEN_TYPES, prompt_ids
from reweigh.engines.transformers.observe import generate_greedily
from reweigh.errors import ArtifactError, InputError, UnsupportedError, first_line
from reweigh.families.anatomy import Anatomy
from reweigh.families.identity import Watch
from reweigh.families.processor import tokenizer_of
from reweigh.families.prompts import DESCRIBE, build_inputs, render
from reweigh.memory import Memory
from reweigh.method.edit import candidates
from reweigh.method.lens import Lens
from reweigh.rivals.tools.branch import Branch, after_prompts, beside, prefill, prompt_pass, read_prompt
from reweigh.rivals.tools.contrast import BRANCH, CUT, Contrast, contrasted, keep_ratio, mix
from reweigh.rivals.tools.edits import (
    StreamEditor,
    edited_beside,
    image_keys,
    last_keys,
    mlp_of,
    require_plain_mlps,
    turned,
    unpadded,
)
from reweigh.rivals.tools.inputs import (
    forwardable,
    image_tags,
    padded,
    picture_parts,
    pixels,
    rows_of,
    span,
    with_ids,
    without_image,
    word_tokens,
)
from reweigh.rivals.tools.layers import (
    OFFICIAL_DEPTH,
    EarlyLayers,
    bucket,
    first_index,
    is_tied,
    reversed_js,
    scaled_layers,
)
from reweigh.rivals.tools.options import fits, require_processor, word_list
from reweigh.rivals.tools.states import last_states
from reweigh.rivals.tools.vectors import SteeringVectors

__all__ = [
    "Anatomy",
    "ArtifactError",
    "BRANCH",
    "Branch",
    "CUT",
    "Contrast",
    "DESCRIBE",
    "Decoder",
    "EarlyLayers",
    "GREEDY",
    "InputError",
    "Lens",
    "Memory",
    "OFFICIAL_DEPTH",
    "Pass",
    "Prompt",
    "Run",
    "SAMPLING",
    "SteeringVectors",
    "StreamEditor",
    "TOKEN_TYPES",
    "UnsupportedError",
    "Watch",
    "after_prompts",
    "beside",
    "bucket",
    "build_inputs",
    "candidates",
    "contrasted",
    "edited_beside",
    "end_tokens",
    "first_index",
    "first_line",
    "fits",
    "forwardable",
    "generate_greedily",
    "image_keys",
    "image_tags",
    "in_range",
    "is_tied",
    "keep_ratio",
    "last_keys",
    "last_states",
    "mix",
    "mlp_of",
    "padded",
    "picture_parts",
    "pixels",
    "prefill",
    "prompt_ids",
    "prompt_pass",
    "read_answers",
    "read_prompt",
    "render",
    "require_plain_mlps",
    "require_processor",
    "reversed_js",
    "rows_of",
    "scaled_layers",
    "span",
    "suspended",
    "tokenizer_of",
    "turned",
    "unpadded",
    "with_ids",
    "without_image",
    "word_list",
    "word_tokens",
]
