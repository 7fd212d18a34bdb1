"""OPERA's loop over one prompt: what a search asks is fed to the model, and what the model answers is shown to the search.

Roll-back crops the cache to the prompt and reads the kept part of the answer again. The prompt is read once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.generation import GenerateBeamDecoderOnlyOutput

from reweigh.engines.transformers.answers import behind_prompts
from reweigh.rivals.opera.retrospection import Search
from reweigh.rivals.tools.beams import Finished
from reweigh.rivals.tools.branch import BranchState

if TYPE_CHECKING:
    from reweigh.rivals.opera.decoder import OPERA


class Loop:
    """The search for one prompt: what to feed the model, and what it answers."""

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
        search = decoder.search(self._prompt_length(state), config, logits.device)
        while True:
            search.remember()
            scores = self._candidates(search, state, logits)
            target = search.target() if decoder.rollback else None
            if target is not None:
                scores = self._roll_back(search, state, target)
            log_probs = self.processors(self._whole(search.beams.tokens), scores.log_softmax(-1))
            parents = search.advance(log_probs, lambda tokens: self.criteria(self._whole(tokens), None))
            if not search.beams.open:
                return search
            state.reorder(parents)
            logits = decoder.read(decoder.runner.step(state, search.beams.tokens[:, -1:]))
            search.grow(parents, decoder.rows()[:, -1, end:])

    def _candidates(self, search: Search, state: BranchState, logits: Tensor) -> Tensor:
        """Scores (k, V) from each beam's candidates."""
        own, tokens = logits.topk(self.decoder.candidates, dim=-1)
        rows = self.decoder.look_ahead(state, tokens)  # (k, C, t + 1)
        image = rows[..., self.image].sum(dim=-1)
        return search.score(logits, tokens, own, rows[..., state.prompt_end :], image)

    def _roll_back(self, search: Search, state: BranchState, length: int) -> Tensor:
        """Go back to ``length`` tokens: scores over the whole vocabulary but for what was rejected there."""
        place = search.rewind(length)
        state.crop(state.fed - state.prompt_end)
        logits = self.decoder.read(self.decoder.runner.step(state, search.beams.tokens))
        self.decoder.rows()
        return search.reject(logits, place)

    def _whole(self, tokens: Tensor) -> Tensor:
        return torch.cat([self.prompt.expand(tokens.shape[0], -1), tokens], dim=1)

    def _prompt_length(self, state: BranchState) -> int:
        """Tokens of the prompt without padding; an image counts as ``image_ids`` if that is given."""
        whole = state.prompt_end if state.mask is None else int(state.mask[0].sum())
        if self.decoder.image_ids is None:
            return whole
        starts = [column for column in self.image if column - 1 not in self.image]
        return whole - len(self.image) + self.decoder.image_ids * len(starts)


def output_of(found: list[list[Finished]], prompts: Tensor, config: Any) -> Any:
    """The best hypotheses of each prompt, padded to one length, in the shape of transformers' beam search."""
    best = [one for ended in found for one in ended[: config.num_return_sequences]]
    sequences = behind_prompts(prompts, [one.tokens for one in best], config)
    if not config.return_dict_in_generate:
        return sequences
    scores = torch.tensor([one.score for one in best]) if config.output_scores else None
    return GenerateBeamDecoderOnlyOutput(sequences=sequences, sequences_scores=scores)
