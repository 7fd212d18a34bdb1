"""Readouts: how the logits of visual positions become evidence for each token.

All of them are means over the positions j of an image:

    dmrr     1 / rank_j(v)                                            (Eq. dmrr, the method's own)
    prob     softmax(z_j)(v)
    logprob  log max(mean_j softmax(z_j)(v), 1e-8)
    zscore   (z_j(v) - mean_u z_j(u)) / std_u z_j(u)
    zprob    (p_j(v) - mean_u p_j(u)) / std_u p_j(u),  p_j = softmax(z_j)

Softmax and moments are taken in float64 of the logits as the head gives them, with the population's standard deviation;
a position whose logits are all equal carries no information and counts as zero. Nothing is computed
here: ``sums`` adds the positions up.
"""

from __future__ import annotations

from dataclasses import dataclass

DMRR = "dmrr"
FLOOR = 1e-8
"""Least mean probability whose logarithm is taken."""


@dataclass(frozen=True)
class Readout:
    """One way to read evidence.

    Attributes:
        name: What files and commands call it.
        title: What tables call it.
        term: What is summed over the positions; two readouts may share it.
        is_log: Whether the logarithm of the mean is the evidence.
        matched: Whether b0 is matched to the mean edit of DMRR, rather than the pooled median.
    """

    name: str
    title: str
    term: str
    is_log: bool = False
    matched: bool = False

    @property
    def is_share(self) -> bool:
        """Whether the evidence lies in (0, 1], as ranks and probabilities do."""
        return not self.matched


READOUTS: dict[str, Readout] = {
    one.name: one
    for one in (
        Readout(DMRR, "DMRR", DMRR),
        Readout("prob", "mean probability", "prob"),
        Readout("logprob", "log mean probability", "prob", is_log=True, matched=True),
        Readout("zscore", "standardized logit", "zscore", matched=True),
        Readout("zprob", "standardized probability", "zprob", matched=True),
    )
}
"""Every readout by its name."""
