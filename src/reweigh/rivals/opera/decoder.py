"""OPERA (Huang et al., CVPR 2024): beam search that penalises leaning on one earlier token, and rolls back from it.

A loop of its own inside ``generate``: a beam's candidates are looked ahead in one pass, side by side, and cropped from
the cache; roll-back crops the cache to the prompt and reads the kept part of the answer again. The prompt is read once.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.rivals.opera.letter import LetterSearch
from reweigh.rivals.opera.loop import Loop, output_of
from reweigh.rivals.opera.retrospection import Rules, Search
from reweigh.rivals.tools.branch import BranchState, Runner
from reweigh.runtime.context import paused
from reweigh.runtime.decoder import Decoder, UpcomingPass, in_range


class _Local(threading.local):
    """The last attention rows seen in this thread, where its prompt's images lie, and tokens fed abreast."""

    rows: Tensor | None = None
    abreast: int = 1
    columns: list[list[int]] = []  # noqa: RUF012


class OPERA(Decoder):
    """Beam search over penalised candidates, with retrospection.

    Args:
        num_beams: Beams; at least 2.
        scale_factor: Scale of the attention weights in the column products.
        threshold: Roll back when each beam named the same token more often than this.
        num_attn_candidates: Candidates looked ahead for each beam.
        penalty_weights: Weight of the penalty; 0 with ``rollback=False`` is beam search over the candidates.
        rollback: Whether to roll back at all.
        permute_history: Let the history of tokens leant on follow its beam; the official program mixes beams.
        image_offset: Shift of the image's span; 1 reproduces the official InstructBLIP positions.
        official: Search to the letter of the official program, slips included (``opera_letter``), in the model's own
            precision and with one look-ahead pass for each candidate.
        image_ids: Tokens an image counts as in the length of an official hypothesis; all its columns if not given. The
            official LLaVA has 1.

    Attributes:
        rollbacks: For each prompt of the last generation, the (from, to) lengths of its roll-backs.
    """

    title = "OPERA"
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
        rollback: bool = True,
        permute_history: bool = False,
        image_offset: int = 0,
        official: bool = False,
        image_ids: int | None = None,
    ) -> None:
        super().__init__(anatomy, processor)
        self.num_beams = int(in_range("num_beams", num_beams, 2))
        self.scale = in_range("scale_factor", scale_factor, 0)
        self.threshold = int(in_range("threshold", threshold, 0))
        self.candidates = int(in_range("num_attn_candidates", num_attn_candidates, 1, anatomy.vocab_size))
        self.weight = in_range("penalty_weights", penalty_weights, 0)
        self.rollback = rollback
        self.permute_history = permute_history
        self.image_offset = image_offset
        self.official = official
        self.image_ids = image_ids
        self.generation = self.regime = {"num_beams": self.num_beams, "do_sample": False}
        self.runner = Runner(anatomy)
        self.rollbacks: list[list[tuple[int, int]]] = []
        kinds = getattr(anatomy.speaker.config.get_text_config(), "layer_types", None) or ()
        self._one_by_one = official or any(kind != "full_attention" for kind in kinds)
        self._local = _Local()

    def before(self, upcoming: UpcomingPass) -> None:
        """Note where the prompt's images lie."""
        self._local.columns = upcoming.columns

    def edit_attention(self, layer: int, scores: Tensor) -> Tensor:
        """Tokens fed abreast see what came before them and themselves, not each other."""
        count = self._local.abreast
        if count == 1:
            return scores
        others = ~torch.eye(count, dtype=torch.bool, device=scores.device)
        apart = scores[..., -count:].masked_fill(others, torch.finfo(scores.dtype).min)
        return torch.cat([scores[..., :-count], apart], dim=-1)

    def see_attention(self, layer: int, weights: Tensor) -> None:
        """Keep the last block's weights of the tokens just fed, the largest over the heads."""
        if layer == len(self.anatomy.blocks) - 1:
            count = self._local.abreast
            largest = self.precise(weights[:, :, -count:].amax(dim=1))  # (B, n, S)
            own = largest[..., -count:].diagonal(dim1=1, dim2=2)[..., None]
            self._local.rows = torch.cat([largest[..., :-count], own], dim=-1)  # (B, n, t + 1)

    def precise(self, values: Tensor) -> Tensor:
        """Values in single precision, or in the model's own for the official search."""
        return values if self.official else values.float()

    def read(self, logits: Tensor) -> Tensor:
        """The last column (B, V) of logits (B, n, V)."""
        return self.precise(logits[:, -1])

    def search(self, prompt: int, config: Any, device: torch.device) -> Search:
        """A new search over one prompt of ``prompt`` tokens."""
        eos = config._eos_token_tensor
        rules = Rules(
            scale=self.scale,
            threshold=self.threshold,
            candidates=self.candidates,
            weight=self.weight,
            permute_history=self.permute_history,
            prompt=prompt,
            eos=() if eos is None else tuple(eos.tolist()),
            length_penalty=config.length_penalty,
            early_stopping=config.early_stopping,
            max_length=config.max_length,
        )
        return (LetterSearch if self.official else Search)(rules, config.num_beams, device)

    def look_ahead(self, state: BranchState, tokens: Tensor) -> Tensor:
        """The attention rows (B, C, t + 1) that candidates (B, C) would have; the state stays as it is."""
        if self._one_by_one:  # a window is counted in columns, so candidates abreast would shift it
            rows = []
            for rank in range(tokens.shape[1]):
                self.runner.glance(state, tokens[:, rank, None])
                rows.append(self.rows())
            return torch.cat(rows, dim=1)
        self._local.abreast = tokens.shape[1]
        try:
            self.runner.glance(state, tokens)
            return self.rows()
        finally:
            self._local.abreast = 1

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
        logits = self.read(raw)
        columns = self._local.columns
        found = []
        with paused(self.anatomy.model):
            for prompt in range(input_ids.shape[0] // count):
                rows = torch.arange(prompt * count, (prompt + 1) * count, device=input_ids.device)
                walk = Loop(self, input_ids[rows[0]], columns[prompt], logits_processor, stopping_criteria)
                found.append(walk.run(self.runner.rows(state, rows), logits[rows], generation_config))
        self.rollbacks = [search.rollbacks for search in found]
        return output_of([search.best() for search in found], input_ids[::count], generation_config)

    def rows(self) -> Tensor:
        """The attention rows (B, n, t + 1) of the pass that has just run, each divided by its sum."""
        rows = self._local.rows
        if rows is None:
            raise UnsupportedError(
                f"{type(self.anatomy.model).__name__} showed no attention weights, which OPERA needs",
                hint="its last block attends in a way that cannot be read",
            )
        self._local.rows = None
        return rows / rows.sum(dim=-1, keepdim=True)
