"""OPERA (Huang et al., CVPR 2024): beam search that penalises leaning on one earlier token, and rolls back from it.

score = logit - penalty_weights * penalty; the penalty is the largest column score c_j = 1e-7 * prod_i scale * A_ij of the
answer's attention map, or minus the attention to the image for the first ten tokens.

A loop of its own inside ``generate``. It differs from the official program in speed (candidates are looked ahead with
the cache of the beam, a roll-back reads only the answer again), in running transformers' current caches, and in
continuing where several end tokens leave it too few continuations. In its scores an image counts as many tokens as it
has in the prompt's ids; the official LLaVA has one id for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.engines.transformers.manager import HookManager
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.rivals.opera.loop import Loop, output_of
from reweigh.rivals.opera.search import Rules, Search
from reweigh.rivals.tools.branch import BranchState, Runner
from reweigh.runtime.context import suspended
from reweigh.runtime.decoder import Decoder, in_range
from reweigh.runtime.forward import Pass


class OPERA(Decoder):
    """Beam search over penalised candidates, with roll-back.

    Args:
        num_beams: Beams; at least 2.
        scale_factor: Scale of the attention weights in the column products.
        threshold: Roll back when each beam named the same token more often than this.
        num_attn_candidates: Candidates looked ahead for each beam.
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
        self.runner = Runner(anatomy)
        self.rollbacks: list[list[tuple[int, int]]] = []

    def see_attention(self, layer: int, weights: Tensor, values: Tensor, forward: Pass | None) -> None:
        """Keep the last block's weights of the last token, the largest over the heads, (B, t)."""
        if forward is not None and layer == len(self.anatomy.blocks) - 1:
            forward.scratch = weights[:, :, -1].amax(dim=1)

    def _prefill(self) -> Pass:
        """The pass that read the prompt, which keeps what the passes after it showed."""
        forward = HookManager.of(self.anatomy).forward
        if forward is None:
            raise InputError("generate was called outside the decoder's `with` block")
        return forward

    def row(self) -> Tensor:
        """The attention row (B, t) of the pass that has just run, divided by its sum."""
        forward = self._prefill()
        row: Tensor | None = forward.scratch
        forward.scratch = None
        if row is None:
            raise UnsupportedError(
                f"{type(self.anatomy.model).__name__} showed no attention weights, which OPERA needs",
                hint="its last block computes attention in a way that cannot be read",
            )
        return row / row.sum(dim=-1, keepdim=True)

    def look_ahead(self, state: BranchState, tokens: Tensor) -> Tensor:
        """The attention rows (B, C, t + 1) that candidates (B, C) would have; the state stays as it is."""
        rows = []
        for rank in range(tokens.shape[1]):
            self.runner.peek(state, tokens[:, rank, None])
            rows.append(self.row())
        return torch.stack(rows, dim=1)

    def search(self, prompt: int, config: Any, device: torch.device) -> Search:
        """A new search over one prompt of ``prompt`` tokens."""
        eos = config._eos_token_tensor
        rules = Rules(
            scale=self.scale,
            threshold=self.threshold,
            candidates=self.candidates,
            weight=self.weight,
            prompt=prompt,
            eos=() if eos is None else tuple(eos.tolist()),
            length_penalty=config.length_penalty,
            early_stopping=config.early_stopping,
            max_length=config.max_length,
        )
        return Search(rules, config.num_beams, device)

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
        count = generation_config.num_beams
        if count < 2 or generation_config.do_sample:
            raise InputError("OPERA is a beam search", hint="leave num_beams (2 or more) and do_sample to it")
        why = "OPERA needs the attention of the whole answer"
        state, raw = self.runner.prefill(model, input_ids, model_kwargs, why)
        logits, columns = raw[:, -1], [row.positions for row in self._prefill().prompts]
        found = []
        with suspended(self.anatomy.model):
            for prompt in range(input_ids.shape[0] // count):
                rows = torch.arange(prompt * count, (prompt + 1) * count, device=input_ids.device)
                loop = Loop(self, input_ids[rows[0]], columns[prompt], logits_processor, stopping_criteria)
                found.append(loop.run(self.runner.rows(state, rows), logits[rows], generation_config))
        self.rollbacks = [search.rollbacks for search in found]
        return output_of([search.best() for search in found], input_ids[::count], generation_config)
