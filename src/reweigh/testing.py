"""For tests of this package and of others: checks that a model is wired as the method needs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from reweigh.doctor.model import LensParity, lens_parity

__all__ = ["LensParity", "assert_lens_parity", "lens_parity"]


def assert_lens_parity(
    model: Any, inputs: Mapping[str, Any], *, tolerance: float = 1e-4, between_blocks: Collection[int] = ()
) -> LensParity:
    """Fail unless norm and head reproduce the model's logits at the image's positions, up to a monotone map.

    Args:
        model: A loaded vision-language model.
        inputs: Processor output with an image.
        tolerance: Allowed misordering as a share of the logits' range; 16-bit models need about 0.02.
        between_blocks: Blocks after which this family is known to add something (DeepStack); the streams after all
            others must equal transformers' ``hidden_states``.
    """
    found = lens_parity(model, inputs)
    if not found.holds(tolerance):
        raise AssertionError(f"the lens misorders the logits of {type(model).__name__}: {found}")
    if not set(found.between_blocks) <= set(between_blocks):
        raise AssertionError(
            f"streams after blocks {found.between_blocks} of {type(model).__name__} are not its hidden_states"
        )
    return found
