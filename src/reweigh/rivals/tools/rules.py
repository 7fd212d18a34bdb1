"""The formulas that the decoders share, as pure functions on batches of logits (..., V).

Each row is treated by itself; a weight or a ratio may be one number, or a tensor (..., 1) with one for each row. A cut
token is minus infinity; a token exactly on a cut stays, one that the main pass rules out is cut.
"""

from __future__ import annotations

import torch
from torch import Tensor

from reweigh.method.edit import candidates

CUT = float("-inf")


def keep_ratio(logits: Tensor, ratio: float | Tensor) -> Tensor:
    """Tokens whose probability is at least ``ratio`` times the largest: a >= max a + ln ratio.

    Logits and log-probabilities give the same answer; ratio 0 keeps every token.
    """
    cut = torch.as_tensor(ratio, dtype=logits.dtype, device=logits.device).log()
    return ~(logits < cut + logits.amax(dim=-1, keepdim=True))


def keep_prefix(logits: Tensor, mass: float, least: int, most: int) -> Tensor:
    """The shortest prefix of tokens, by probability, that holds ``mass``; a mask over (B, V)."""
    chosen = candidates(logits, mass=mass, least=least, most=most)
    kept = torch.zeros_like(logits, dtype=torch.bool)
    return kept.scatter_(1, chosen.ids, chosen.keep)


def mix(
    main: Tensor, reference: Tensor, w_main: float | Tensor, w_reference: float | Tensor, keep: Tensor
) -> Tensor:
    """``w_main * main + w_reference * reference`` on the kept tokens, minus infinity elsewhere."""
    return (w_main * main + w_reference * reference).masked_fill(~keep | main.isneginf(), CUT)


def contrast(
    main: Tensor, reference: Tensor, alpha: float | Tensor, ratio: float | Tensor, *, log_space: bool
) -> Tensor:
    """(1 + alpha) * main - alpha * reference on the tokens that pass the ratio cut of ``main``."""
    if log_space:
        main, reference = main.log_softmax(-1), reference.log_softmax(-1)
    return mix(main, reference, 1 + alpha, -alpha, keep_ratio(main, ratio))


def bounded_contrast(main: Tensor, reference: Tensor, power: float) -> Tensor:
    """CODE's contrast: how far the two distributions are apart decides both the weight and the cut, row by row.

    D = ½ sum_v (p + q) log2(1 + |p - q|^power), which lies in [0, 1]; y = (2 - D) main - (1 - D) reference on the
    tokens with p >= D max p. Equal rows are left as they are; rows without a common token keep only the best one.
    """
    p, q = main.softmax(-1), reference.softmax(-1)
    apart = ((p + q) * ((p - q).abs() ** power + 1).log2()).sum(dim=-1, keepdim=True) / 2
    weight = 1 - apart
    return mix(main, reference, 1 + weight, -weight, ~(p < apart * p.amax(dim=-1, keepdim=True)))


def together_or_against(
    main: Tensor, reference: Tensor, alpha_1: float, alpha_2: float, gamma: float, ratio: float
) -> Tensor:
    """ONLY's rule: main + alpha_1 * reference where the two distributions are close, else a contrast; then the cut.

    Close means sum_v |p - q| < gamma, which lies in [0, 2].
    """
    apart = (main.softmax(-1) - reference.softmax(-1)).abs().sum(dim=-1, keepdim=True)
    close = apart < gamma
    w_main = torch.where(close, 1.0, 1.0 + alpha_2)
    return mix(main, reference, w_main, torch.where(close, alpha_1, -alpha_2), keep_ratio(main, ratio))


def reversed_js(first: Tensor, second: Tensor) -> Tensor:
    """The divergence of DoLa and ReVisiT between log-probabilities (..., V): mean over V, arguments reversed.

    ½ (mean_v m (ln m - ln p) + mean_v m (ln m - ln q)) with m = ½ (p + q). The textbook's Jensen-Shannon
    divergence has KL(p | m) and a sum; the token or layer chosen by the two can differ.
    """
    middle = (first.exp() + second.exp()) / 2
    log_middle = middle.log()
    terms = middle * (2 * log_middle - first - second)
    return torch.where(middle > 0, terms, torch.zeros_like(terms)).mean(dim=-1) / 2
