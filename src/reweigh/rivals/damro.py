"""DAMRO (Gong et al., EMNLP 2024): contrast with a branch that sees only the patches its vision tower attends to most.

Those are the patches to which the class token of the tower gives most attention; they are taken for background that
drowns the objects. The branch's image is made of them alone, the most attended first.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.transformers.arguments import prompt_ids
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.contrast import Contrast
from reweigh.rivals.tools.inputs import padded, pixels, rows_of
from reweigh.rivals.tools.outliers import Outliers
from reweigh.rivals.tools.tower import project
from reweigh.runtime.decoder import SAMPLING, ForwardPass


class DAMRO(Contrast):
    """VCD's formula and cut; the branch has ``keep`` patches of the image, the most attended first.

    LLaVA-1.5 and LLaVA-NeXT (its overview only) put them in the image's place. InstructBLIP's Q-Former reads them.

    Args:
        alpha: Weight of the contrast; the official InstructBLIP scripts use 0.5 for POPE and 1.5 for CHAIR.
        beta: Plausibility cut.
        keep: Patches kept; 10, for InstructBLIP 4.
        layer: Block of the vision tower whose attention is read; that of the features, for InstructBLIP -2. The
            official copy of LLaVA-1.5's original code reads the last block (-1).
        off_by_one: Take the patch before each chosen one (for the first patch the class token), as the official
            program does where the class token is among the features: InstructBLIP.
    """

    title = "DAMRO"
    regime = SAMPLING

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        alpha: float = 2.0,
        beta: float = 0.1,
        keep: int | None = None,
        layer: int | None = None,
        off_by_one: bool = False,
    ) -> None:
        super().__init__(anatomy, processor, alpha=alpha, beta=beta)
        self.outliers = Outliers(anatomy, keep, layer, off_by_one)

    def branch_inputs(self, forward: ForwardPass) -> dict[str, Any]:
        """The prompt with the chosen vectors in the image's place, as embeddings."""
        images = self._images(forward.inputs)
        image, runs, rows = self.anatomy.image_tokens, 0, []
        for row in rows_of(forward.inputs):
            shorter: list[int] = []
            for token, run in groupby(row):
                count = len(list(run)) if token not in image else images.shape[1]
                shorter += [token] * count
                runs += token in image
            rows.append(shorter)
        if runs != len(images):
            raise UnsupportedError(
                f"{len(images)} images were given, but they stand in {runs} places of the prompt",
                hint="put text between images",
            )
        inputs = padded(rows, prompt_ids(forward.inputs).device)
        visual = torch.isin(inputs["input_ids"], torch.tensor(image, device=inputs["input_ids"].device))
        visual &= inputs["attention_mask"].bool()
        embeds = self.anatomy.model.get_input_embeddings()(inputs["input_ids"].masked_fill(visual, 0))
        embeds[visual] = images.flatten(0, 1).to(embeds)
        return {**inputs, "inputs_embeds": embeds}

    @torch.no_grad()
    def _images(self, inputs: Mapping[str, Any]) -> Tensor:
        """What the language model reads of each image, (images, n, d)."""
        picture = pixels(inputs)
        overview = picture[:, 0] if picture.ndim == 5 else picture  # the whole image comes before its tiles
        return project(self.anatomy, self.outliers.chosen(overview), inputs)
