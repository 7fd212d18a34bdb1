"""OPERA's loop over one prompt: feeds the model what the search asks for, and shows the search what the model answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.generation import GenerateBeamDecoderOnlyOutput

from reweigh.rivals.opera.search import Finished, Search
from reweigh.rivals.tools.branch import BranchState, after_prompts

if TYPE_CHECKING:
    from reweigh.rivals.opera.decoder import OPERA


class Loop:
    """The search for one prompt.

    Args:
        prompt: Its ids as ``generate`` has them, padding included.
        columns: Its image columns.
        processors: The caller's logits processors.
        criteria: The caller's stopping criteria.
    """

    def __init__(
        self, decoder: OPERA, prompt: Tensor, columns: list[int], processors: Any, criteria: Any
    ) -> None:
        self.decoder = decoder
        self.prompt = prompt
        self.image = [column + decoder.image_offset for column in columns]
        self.processors = processors
        self.criteria = criteria

    def run(self, state: BranchState, logits: Tensor, config: Any) -> Search:
        """Search until nothing better can be found."""
        decoder, end = self.decoder, state.prompt_end
        length = end if state.mask is None else int(state.mask[0].sum())  # padding does not count
        search = decoder.search(length, config, logits.device)
        while True:
            search.remember()
            scores = self._candidates(search, state, logits)
            target = search.target()
            if target is not None:
                scores = self._roll_back(search, state, target)
            log_probs = self.processors(self._whole(search.beams.tokens), scores.log_softmax(-1))
            parents = search.advance(log_probs, lambda tokens: self.criteria(self._whole(tokens), None))
            if not search.beams.open:
                return search
            state.reorder(parents)
            logits = decoder.runner.step(state, search.beams.tokens[:, -1:])[:, -1]
            search.grow(parents, decoder.row()[:, end:])

    def _candidates(self, search: Search, state: BranchState, logits: Tensor) -> Tensor:
        """Scores (k, V) from each beam's candidates."""
        own, tokens = logits.topk(self.decoder.candidates, dim=-1)
        rows = self.decoder.look_ahead(state, tokens)  # (k, C, t + 1)
        image = rows[..., self.image].sum(dim=-1)
        return search.score(logits, tokens, own, rows[..., state.prompt_end :], image)

    def _roll_back(self, search: Search, state: BranchState, length: int) -> Tensor:
        """Return to ``length`` tokens: scores over the whole vocabulary except what was rejected there.

        The cache is cropped to the prompt and the kept part of the answer is read again.
        """
        search.rewind(length)
        state.crop(state.fed - state.prompt_end)
        logits = self.decoder.runner.step(state, search.beams.tokens)[:, -1]
        self.decoder.row()
        return search.reject(logits, length)

    def _whole(self, tokens: Tensor) -> Tensor:
        return torch.cat([self.prompt.expand(tokens.shape[0], -1), tokens], dim=1)


def output_of(found: list[list[Finished]], prompts: Tensor, config: Any) -> Any:
    """The best hypotheses of each prompt, padded to one length, in the shape of transformers' beam search."""
    best = [one for ended in found for one in ended[: config.num_return_sequences]]
    sequences = after_prompts(prompts, [one.tokens for one in best], config)
    if not config.return_dict_in_generate:
        return sequences
    scores = torch.tensor([one.score for one in best]) if config.output_scores else None
    return GenerateBeamDecoderOnlyOutput(sequences=sequences, sequences_scores=scores)
