"""OPERA (Huang et al., CVPR 2024): beam search that penalizes leaning on one earlier token, and rolls back from it.

score = logit - penalty_weights * penalty; the penalty is the largest column score c_j = 1e-7 * prod_i scale * A_ij of the
answer's attention map, or minus the attention to the image for the first ten tokens.

It is a decoding loop inside ``generate``: :class:`Loop` feeds the model, ``search`` decides what to feed and keeps finished
hypotheses. Unlike the official program it looks ahead with the beam's own cache, re-reads only the answer at a roll-back,
and considers more continuations where several end tokens would leave too few. In length-normalized scores an image counts
as many tokens as the prompt has for it; the official LLaVA has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.generation import GenerateBeamDecoderOnlyOutput

from reweigh.rivals.opera.search import Search
from reweigh.rivals.tools import (
    Anatomy,
    Branch,
    Decoder,
    InputError,
    Pass,
    UnsupportedError,
    after_prompts,
    in_range,
    prefill,
    prompt_pass,
    suspended,
)


class OPERA(Decoder):
    """Beam search over penalized candidates, with roll-back.

    Args:
        num_beams: Beams; at least 2.
        scale_factor: Scale of the attention weights in the column products.
        threshold: Roll back when every beam has leaned on the same token more often than this.
        num_attn_candidates: Candidates tried for each beam.
        penalty_weights: Weight of the penalty.

    Attributes:
        rollbacks: For each prompt of the last generation, the (from, to) lengths of its roll-backs.
    """

    title = "OPERA"
    grid = (("scale_factor", (10.0, 25.0, 50.0)), ("penalty_weights", (0.5, 1.0)))
    attends = True

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        num_beams: int = 5,
        scale_factor: float = 50.0,
        threshold: int = 15,
        num_attn_candidates: int = 5,
        penalty_weights: float = 1.0,
    ) -> None:
        super().__init__(anatomy, processor)
        self.num_beams = int(in_range("num_beams", num_beams, 2))
        self.scale = in_range("scale_factor", scale_factor, 0)
        self.threshold = int(in_range("threshold", threshold, 0))
        self.candidates = int(in_range("num_attn_candidates", num_attn_candidates, 1, anatomy.vocab_size))
        self.weight = in_range("penalty_weights", penalty_weights, 0)
        # the official program places InstructBLIP's image at 1 to 32 instead of 0 to 31
        self.image_offset = 1 if anatomy.family.name == "instructblip" else 0
        self.generation = self.regime = {"num_beams": self.num_beams, "do_sample": False}
        self.rollbacks: list[list[tuple[int, int]]] = []

    def see_attention(self, layer: int, weights: Tensor, values: Tensor, forward: Pass | None) -> None:
        """Keep the last block's weights of the last token, the largest over the heads, (B, t)."""
        if forward is not None and layer == len(self.anatomy.blocks) - 1:
            forward.prompt.scratch = weights[:, :, -1].amax(dim=1)

    def row(self) -> Tensor:
        """Return the attention row (B, t) of the latest pass, divided by its sum."""
        forward = prompt_pass(self.anatomy)
        row: Tensor | None = forward.prompt.scratch
        forward.prompt.scratch = None
        if row is None:
            raise UnsupportedError(
                f"{type(self.anatomy.model).__name__} showed no attention weights, which OPERA needs",
                hint="its last block computes attention in a way that cannot be read",
            )
        return row / row.sum(dim=-1, keepdim=True)

    def loop(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **model_kwargs: Any,
    ) -> Any:
        """The ``custom_generate`` of transformers: input rows are k copies of each prompt."""
        config, count = generation_config, generation_config.num_beams
        if count < 2 or config.do_sample:
            raise InputError("OPERA is a beam search", hint="leave num_beams (2 or more) and do_sample to it")
        why = "OPERA needs the attention of the whole answer"
        branch, raw = prefill(self.anatomy, model, input_ids, model_kwargs, why)
        logits, prompts = raw[:, -1], prompt_pass(self.anatomy).prompt.rows
        found = []
        with suspended(self.anatomy.model):
            for number, prompt in enumerate(prompts):
                rows = torch.arange(number * count, (number + 1) * count, device=input_ids.device)
                image = [column + self.image_offset for column in prompt.positions]
                given = input_ids[rows[0]]
                loop = Loop(self, branch.copy(rows), given, image, logits_processor, stopping_criteria)
                found.append(loop.run(logits[rows], config))
        self.rollbacks = [search.rollbacks for search in found]
        best = [one for search in found for one in search.finished.best()[: config.num_return_sequences]]
        sequences = after_prompts(input_ids[::count], [one.tokens for one in best], config)
        if not config.return_dict_in_generate:
            return sequences
        scores = torch.tensor([one.score for one in best]) if config.output_scores else None
        return GenerateBeamDecoderOnlyOutput(sequences=sequences, sequences_scores=scores)


@dataclass
class Loop:
    """The search over one prompt: feeds the model the tokens that the search asks for, and the search its answers.

    Attributes:
        branch: The prompt, once for each beam.
        prompt: Its ids as ``generate`` has them, padding included.
        image: Its image columns.
        processors: The caller's logits processors.
        criteria: The caller's stopping criteria.
    """

    decoder: OPERA
    branch: Branch
    prompt: Tensor
    image: list[int]
    processors: Any
    criteria: Any

    def run(self, logits: Tensor, config: Any) -> Search:
        """Search until nothing better can be found."""
        decoder, branch = self.decoder, self.branch
        length = int(branch.mask[0].sum())  # padding does not count
        search = Search(decoder, config, length, logits.device)
        while True:
            search.remember()
            scores = self._candidates(search, logits)
            target = search.target()
            if target is not None:
                scores = self._roll_back(search, target)
            log_probs = self.processors(self._whole(search.beams.tokens), scores.log_softmax(-1))
            parents = search.advance(log_probs, lambda tokens: self.criteria(self._whole(tokens), None))
            if not search.beams.open:
                return search
            branch.reorder(parents)
            logits = branch.step(search.beams.tokens[:, -1:])[:, -1]
            search.grow(parents, decoder.row()[:, branch.prompt_end :])

    def _candidates(self, search: Search, logits: Tensor) -> Tensor:
        """Try each beam's candidates, and return their scores (k, V)."""
        own, tokens = logits.topk(self.decoder.candidates, dim=-1)
        rows = []
        for rank in range(tokens.shape[1]):
            self.branch.peek(tokens[:, rank, None])
            rows.append(self.decoder.row())
        ahead = torch.stack(rows, dim=1)  # (k, C, t + 1)
        image = ahead[..., self.image].sum(dim=-1)
        return search.score(logits, tokens, own, ahead[..., self.branch.prompt_end :], image)

    def _roll_back(self, search: Search, length: int) -> Tensor:
        """Go back to ``length`` tokens; return scores over the whole vocabulary without what was rejected there.

        The cache is cropped to the prompt and the kept part of the answer is read again.
        """
        search.rewind(length)
        self.branch.crop(self.branch.fed - self.branch.prompt_end)
        logits = self.branch.step(search.beams.tokens)[:, -1]
        self.decoder.row()
        return search.reject(logits, length)

    def _whole(self, tokens: Tensor) -> Tensor:
        return torch.cat([self.prompt.expand(tokens.shape[0], -1), tokens], dim=1)
