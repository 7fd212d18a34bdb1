"""Contrast with a second branch: push the main logits a away from the logits r of a weakened input.

y = (1 + alpha) a - alpha r on the tokens that pass the plausibility cut a >= max a + ln beta. VCD, ICD, SID, PAI, M3ID,
CODE, DAMRO and ASD differ in their branch, in the space (logits or log-probabilities), and in the weight.

The branch starts when the main pass has read the prompt and is then fed the same tokens. It travels with the main pass's
batch and follows when the main cache is cropped, reordered by beams, or copied.

The formulas are pure functions on batches of logits (..., V) and treat each row by itself; a weight or a ratio is one
number, or a tensor (..., 1) with one per row. A cut token is minus infinity. A token exactly on the cut stays; one that
the main pass rules out is cut.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from reweigh.engines.base import Decoder, Pass, Prompt, in_range
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.branch import Branch, read_prompt
from reweigh.rivals.tools.edits import unpadded
from reweigh.rivals.tools.inputs import forwardable, without_image

CUT = float("-inf")

BRANCH = "contrast"
"""Name of the branch in the batch."""


def keep_ratio(logits: Tensor, ratio: float | Tensor) -> Tensor:
    """Mark the tokens whose probability is at least ``ratio`` times the largest: a >= max a + ln ratio.

    Logits and log-probabilities give the same answer; ratio 0 keeps every token.
    """
    cut = torch.as_tensor(ratio, dtype=logits.dtype, device=logits.device).log()
    return ~(logits < cut + logits.amax(dim=-1, keepdim=True))


def mix(
    main: Tensor, reference: Tensor, w_main: float | Tensor, w_reference: float | Tensor, keep: Tensor
) -> Tensor:
    """``w_main * main + w_reference * reference`` on the kept tokens, minus infinity elsewhere."""
    return (w_main * main + w_reference * reference).masked_fill(~keep | main.isneginf(), CUT)


def contrasted(
    main: Tensor, reference: Tensor, alpha: float | Tensor, ratio: float | Tensor, *, log_space: bool
) -> Tensor:
    """(1 + alpha) * main - alpha * reference on the tokens that pass the ratio cut of ``main``."""
    if log_space:
        main, reference = main.log_softmax(-1), reference.log_softmax(-1)
    return mix(main, reference, 1 + alpha, -alpha, keep_ratio(main, ratio))


class Contrast(Decoder):
    """A decoder that contrasts the main pass with one branch. A subclass says what the branch reads, or has its own rule.

    Args:
        alpha: Weight of the contrast; 0 needs no branch.
        beta: Plausibility cut as a share of the largest probability; 0 cuts nothing.

    Attributes:
        log_space: Whether log-probabilities are mixed instead of logits.
        is_blind: Whether the branch reads the prompt without its image.
    """

    log_space: ClassVar[bool] = False
    is_blind: ClassVar[bool] = False

    def __init__(self, anatomy: Anatomy, processor: Any = None, *, alpha: float, beta: float) -> None:
        super().__init__(anatomy, processor)
        self.alpha = in_range("alpha", alpha, 0)
        self.beta = in_range("beta", beta, 0, 1)

    def branch_inputs(self, prompt: Prompt) -> dict[str, Any]:
        """Return the branch's prompt, as the model's forward takes it."""
        if self.is_blind:
            return without_image(self.anatomy, self.processor, prompt.inputs)
        return forwardable(self.anatomy, prompt.inputs)

    def rule(self, main: Tensor, reference: Tensor, forward: Pass) -> Tensor:
        """Return new logits (B, n, V) of the last n columns from those of the two passes."""
        return contrasted(main, reference, self.alpha, self.beta, log_space=self.log_space)

    def edit(self, forward: Pass) -> Tensor | None:
        """Contrast the last columns of rows that have an image."""
        if not forward.has_image or (self.alpha == 0 and self.beta == 0):
            return None
        main = forward.logits.float()
        reference = main[:, -forward.edited_columns() :] if self.alpha == 0 else self.reference(forward)
        if reference is None:
            return None
        edited = self.rule(main[:, -reference.shape[1] :], reference.float(), forward)
        return forward.with_last(edited, forward.image_rows())

    def reference(self, forward: Pass) -> Tensor | None:
        """Return the branch's logits (B, n, V) for the last columns of this pass; ``None`` inside a chunked prompt.

        One column where the prompt ends in this pass, all K columns of a later pass.
        """
        if forward.past + forward.length < forward.prompt.end:
            return None
        branch: Branch | None = forward.prompt.batch.branches.get(BRANCH)
        found, columns = [], forward.logits.shape[1]
        if branch is None:
            branch, logits = self._start(forward)
            found.append(logits)
            forward.prompt.batch.branches[BRANCH] = branch
        else:
            rewind(branch, forward)
        ids = forward.arguments.get("input_ids")
        # a prompt given as embeddings has no ids; the branch has read it from its own inputs
        rest = None if ids is None else ids[:, branch.fed - forward.past :]
        if rest is not None and rest.shape[1]:  # also after a prompt that was read together with a draft
            seen = unpadded(forward)[:, branch.fed :]  # prompts of a further turn may be padded
            found.append(branch.step(rest, min(rest.shape[1], columns), seen))
        if not found:
            raise UnsupportedError("a pass gave the second branch nothing new to read")
        return torch.cat(found, dim=1)[:, -columns:].to(forward.logits.device)

    def _start(self, forward: Pass) -> tuple[Branch, Tensor]:
        if forward.prompt.start:
            raise UnsupportedError(
                "the kept cache was filled before an image was seen, so a second branch cannot be continued",
                hint="start a new conversation inside the decoder's `with` block",
            )
        branch, logits = read_prompt(self.anatomy, self.branch_inputs(forward.prompt), forward.prompt.end)
        times = len(forward.rows) // len(logits)  # beams; the branch has read each prompt once
        branch.repeat(times)
        return branch, logits.repeat_interleave(times, dim=0)


def rewind(branch: Branch, forward: Pass) -> None:
    """Bring a branch back to where a pass begins."""
    rows = forward.logits.shape[0]
    if len(branch.mask) != rows:
        raise UnsupportedError(
            f"the second branch has {len(branch.mask)} rows, but this pass has {rows}",
            hint="continue a kept cache with the number of rows it was filled with",
        )
    if forward.prompt.start >= branch.prompt_end and forward.new():
        raise UnsupportedError(
            "the continued conversation shows a new image, which the second branch cannot take in",
            hint="start a new conversation with all the images",
        )
    # without a main cache beams cannot be followed: what they generated is read again
    target = (
        branch.prompt_end
        if forward.arguments.get("past_key_values") is None
        else min(branch.fed, forward.past)
    )
    if target < branch.prompt_end:
        raise UnsupportedError(f"the main cache was cropped into its prompt, to {target} columns")
    branch.crop(branch.fed - target)
