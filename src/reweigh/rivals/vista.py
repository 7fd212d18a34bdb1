"""VISTA (Li et al., ICML 2025): MLP outputs turned toward what the image adds, and help from late blocks.

v_l is the state of the prompt's last position after block l, with the image minus without it. Every MLP output x
becomes |x| unit(unit(x) + lam (1 + max(0, cos(x, -v_l))) unit(v_l)), in the prompt and at each step. Logits: alpha
mean_l head(h_l) + (1 - alpha) a, for the unnormed states h_l of late blocks.

As in the official program, v_0[0] grows by 1: the program adds the principal component of a single difference, which is
the first unit vector. It serves batches of one; here each row has its own v. Two extra passes, the prompt with and without
image, run before each answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import (
    Anatomy,
    EarlyLayers,
    Pass,
    StreamEditor,
    UnsupportedError,
    bucket,
    forwardable,
    in_range,
    last_states,
    read_prompt,
    require_plain_mlps,
    scaled_layers,
    turned,
    without_image,
)


class VISTA(StreamEditor, EarlyLayers):
    """Steering toward the image, and logits of late blocks mixed in.

    Args:
        lam: Strength of the steering; 0 steers nothing and needs no extra pass. The scripts use 0.17 for captions, 0.1
            for MMHal-Bench and 0.01 for POPE.
        alpha: Share of the earlier layers in the logits; 0 leaves the logits as they are.
        layers: Indices of ``hidden_states`` that are mixed in; by default 26 to 31 of 32 blocks, and the same share of
            other depths.
    """

    title = "VISTA"
    grid = (("lam", (0.05, 0.1, 0.17)), ("alpha", (0.1, 0.3)))
    needs_image = True
    norm = False

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        lam: float = 0.17,
        alpha: float = 0.3,
        layers: Sequence[int] | None = None,
    ) -> None:
        count = len(anatomy.blocks)
        usual = scaled_layers(26, 31, count) if layers is None else layers
        super().__init__(anatomy, processor, bucket(usual, count, tied=False))
        self.lam = in_range("lam", lam, 0)
        self.alpha = in_range("alpha", alpha, 0, 1)
        if self.lam:
            require_plain_mlps(anatomy, self.title)
            self.mlp_layers = range(count)

    def before(self, forward: Pass) -> None:
        """Measure the direction of rows whose image the next pass shows."""
        forward.prompt.scratch = {}
        if self.lam == 0 or not (new := forward.new()):
            return
        if forward.prompt.start:
            raise UnsupportedError(
                "a continued conversation shows a new image: VISTA compares the whole prompt with and without image",
                hint="start a new conversation with all the images",
            )
        prompt = forwardable(self.anatomy, forward.prompt.inputs)
        text = without_image(self.anatomy, self.processor, forward.prompt.inputs)
        directions = self._read(prompt, forward) - self._read(text, forward)  # (B, L, d)
        directions[:, 0, 0] += 1
        forward.prompt.scratch = {row.number: directions[row.index] for _, row, _ in new}

    def _read(self, prompt: dict[str, Any], forward: Pass) -> Tensor:
        """The states (B, L, d) of a prompt's last position after each block."""
        blocks = range(len(self.anatomy.blocks))
        return last_states(
            self.anatomy, lambda: read_prompt(self.anatomy, prompt, forward.prompt.end), blocks
        )

    def edit(self, forward: Pass) -> Tensor | None:
        """Keep the directions with their rows, and mix late blocks into the logits."""
        for _, row, columns in forward.new():
            if row.number in forward.prompt.scratch:
                forward.keep(row, columns, forward.prompt.scratch[row.number])
        if self.alpha == 0 or not forward.has_image:
            return None
        edited = super().edit(forward)
        return forward.with_last(edited, forward.image_rows()) if edited is not None else None

    def combine(self, final: Tensor, early: Tensor) -> Tensor:
        """The weighted mean of the last layer and the earlier ones."""
        return self.alpha * early.mean(dim=0) + (1 - self.alpha) * final

    def edit_mlp(self, layer: int, x: Tensor, out: Tensor, forward: Pass) -> Tensor | None:
        """Turn every position toward its row's direction."""
        rows = [forward.prompt.scratch.get(row.number, row.reading) for row in forward.rows]
        if len(rows) != len(out) or all(row is None for row in rows):
            return None
        zero = out.new_zeros(out.shape[-1], dtype=torch.float32)
        vectors = [zero if row is None else row[layer].to(out.device) for row in rows]
        return turned(out.float(), torch.stack(vectors)[:, None], self.lam, against=True)
