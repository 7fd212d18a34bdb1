"""ONLY (Wan et al., ICCV 2025): the answer joined or contrasted with a side path from one block's text-heavy heads.

In one block, attention of the last position is cut: in the text group and in the image group alike, weights above
mean plus standard deviation become 0; heads whose text entropy over image entropy is below the heads' mean become 0
altogether. What is left is mixed and skips to the last block: u = 0.2 x + norm_in(c), u <- u + MLP(norm_post(u)), r =
head(norm(u) + 0.5 norm(h)). With D = sum_v |softmax a - softmax r|: y = a + alpha_1 r where D < gamma, else (1 +
alpha_2) a - alpha_2 r, and a plausibility cut.

The official program fixes the image's columns for one system prompt and decides once for a whole batch; here each row has
its own columns and decision. With ``layer`` set to the last block the official program leaves u = c, without the last
block's norms and MLP; here they apply as always. Where r is close to a, the first rule is nearly 4 a, a temperature of
1/4: compare it with ``nucleus`` at temperature 0.25. All families get the form of the LLaVA program.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import (
    SAMPLING,
    Anatomy,
    Decoder,
    Lens,
    Pass,
    UnsupportedError,
    image_keys,
    in_range,
    keep_ratio,
    last_keys,
    mix,
    mlp_of,
    unpadded,
)

KEPT_INPUT = 0.2
KEPT_ANSWER = 0.5
TINY = 1e-6


def cut_group(weights: Tensor, group: Tensor) -> Tensor:
    """Set the group's attention (..., S) to 0 where it is above the group's mean plus standard deviation."""
    count = group.sum(dim=-1, keepdim=True)
    mean = (weights * group).sum(dim=-1, keepdim=True) / count
    spread = (((weights - mean) * group) ** 2).sum(dim=-1, keepdim=True) / (count - 1)
    return weights.masked_fill(group & (weights > mean + spread.sqrt()), 0.0)


def group_entropy(weights: Tensor, group: Tensor, empty: float) -> Tensor:
    """Return -sum q ln(q + 1e-6) of a group's weights (..., S) divided by their sum; ``empty`` where all are 0."""
    own = weights * group
    total = own.sum(dim=-1, keepdim=True)
    shares = own / total
    entropy = -(shares * (shares + TINY).log()).sum(dim=-1)
    return torch.where(total[..., 0] > 0, entropy, torch.full_like(entropy, empty))


def text_heads(weights: Tensor, text: Tensor, image: Tensor) -> Tensor:
    """Cut attention (B, H, n, S) in both groups (B, 1, 1, S), and set heads below the mean entropy ratio to 0."""
    left = cut_group(cut_group(weights, text), image)
    ratio = group_entropy(left, text, 0.0) / group_entropy(left, image, float("inf"))  # (B, H, n)
    return left * (ratio >= ratio.mean(dim=1, keepdim=True))[..., None]


def together_or_against(
    main: Tensor, reference: Tensor, alpha_1: float, alpha_2: float, gamma: float, ratio: float
) -> Tensor:
    """Return main + alpha_1 reference where D < gamma, else (1 + alpha_2) main - alpha_2 reference, after the cut."""
    apart = (main.softmax(-1) - reference.softmax(-1)).abs().sum(dim=-1, keepdim=True)
    close = apart < gamma
    w_main = torch.where(close, 1.0, 1.0 + alpha_2)
    return mix(main, reference, w_main, torch.where(close, alpha_1, -alpha_2), keep_ratio(main, ratio))


class ONLY(Decoder):
    """Join or contrast the answer with a side path from the text-heavy heads of one block.

    Args:
        alpha_1: Weight of the side path where it agrees.
        alpha_2: Weight of the contrast where it does not.
        gamma: Distance of the two distributions, from 0 to 2, below which they agree. The scripts use 0.25 for captions
            and 0.2 for POPE.
        beta: Plausibility cut as a share of the largest probability.
        layer: Block whose attention is cut.
    """

    title = "ONLY"
    grid = (("gamma", (0.1, 0.25, 0.6)), ("alpha_1", (1.0, 3.0)))
    regime = SAMPLING
    attends = True

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        alpha_1: float = 3.0,
        alpha_2: float = 1.0,
        gamma: float = 0.25,
        beta: float = 0.1,
        layer: int = 0,
    ) -> None:
        super().__init__(anatomy, processor)
        self.alpha_1, self.alpha_2 = in_range("alpha_1", alpha_1, 0), in_range("alpha_2", alpha_2, 0)
        self.gamma = in_range("gamma", gamma, 0, 2)
        self.beta = in_range("beta", beta, 0, 1)
        self.layer = anatomy.check_layer(layer)
        self.mix = _output_of(anatomy, self.layer)
        self._last: Any = anatomy.blocks[-1]
        self._mlp = mlp_of(anatomy, len(anatomy.blocks) - 1)
        self.lens = Lens(anatomy.norm, anatomy.head)
        self.layers = frozenset({len(anatomy.blocks) - 2, len(anatomy.blocks) - 1})

    def see_attention(self, layer: int, weights: Tensor, values: Tensor, forward: Pass | None) -> None:
        """Mix what the text-heavy heads of the chosen block see at the columns that will be edited."""
        if layer != self.layer or forward is None or not (forward.is_running and forward.has_image):
            return
        total, width = forward.past + forward.length, weights.shape[-1]
        count = min(forward.length, total - forward.prompt.end + 1)
        if count < 1:  # inside a prompt that is read in chunks
            return
        image = image_keys(forward.rows, total, width, weights.device)
        text = ~image & last_keys(unpadded(forward), width).to(weights.device)
        first = text | image
        text &= ~(first & (first.cumsum(dim=1) == 1))  # the first column belongs to neither group
        seen = weights[:, :, -count:].float()
        left = text_heads(seen, text[:, None, None], image[:, None, None])
        mixed = (left.to(values.dtype) @ values).transpose(1, 2).flatten(2)  # (B, n, H * head)
        forward.prompt.scratch = self.mix(mixed)

    def edit(self, forward: Pass) -> Tensor | None:
        """Join or contrast the last columns of rows that have an image."""
        side: Tensor | None = forward.prompt.scratch
        if side is None:
            return None
        before, after = (forward.states[layer][:, -side.shape[1] :] for layer in sorted(self.layers))
        stream = KEPT_INPUT * before + self._last.input_layernorm(side)
        stream = stream + self._mlp(self._last.post_attention_layernorm(stream))
        joined = self.anatomy.norm(stream) + KEPT_ANSWER * self.anatomy.norm(after)
        reference = self.lens.read(joined, norm=False).float().to(forward.logits.device)
        columns = min(reference.shape[1], forward.logits.shape[1])
        main = forward.logits[:, -columns:].float()
        rule = (self.alpha_1, self.alpha_2, self.gamma, self.beta)
        return forward.with_last(
            together_or_against(main, reference[:, -columns:], *rule), forward.image_rows()
        )


def _output_of(anatomy: Anatomy, layer: int) -> Any:
    """Return the output matrix of a block's attention; refuse blocks that are not built like Llama's."""
    block: Any = anatomy.blocks[layer]
    mix = getattr(getattr(block, "self_attn", None), "o_proj", None)
    last: Any = anatomy.blocks[-1]
    norms = all(hasattr(last, name) for name in ("input_layernorm", "post_attention_layernorm"))
    if mix is None or not norms or hasattr(last, "post_feedforward_layernorm"):
        raise UnsupportedError(
            f"the blocks of {type(anatomy.model).__name__} are not Llama's, on whose parts the side path is defined",
            hint="use another decoder on this family",
        )
    return mix
