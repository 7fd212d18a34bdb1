"""Focal contrast: HALC-style fields of view around the picture's centre, contrasted at every step. Not HALC.

Neither detector, matcher, word roll-back nor deletion: four branches see crops of the picture, and of the two contrasts of
the pair that differs most, the one whose best token the whole picture likes more gives the logits.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.rivals.halc.fields import CENTRE, fields, focal
from reweigh.rivals.tools.branch import Branch
from reweigh.rivals.tools.inputs import rows_of
from reweigh.rivals.tools.pictures import (
    PictureSession,
    crop,
    picture_request,
    pictures_of,
    with_pictures,
)
from reweigh.runtime.decoder import Decoder, ForwardPass, Request, in_range


class FocalContrast(Decoder):
    """y = f_j - weight f_i, or f_i - weight f_j, of the two fields of view with the largest divergence.

    Args:
        box: The box around which the fields lie, as fractions of the picture; HALC's fallback.
        growth: How much a field is larger than the one before.
        count: Fields, from 2 on; 0 is the base model.
        weight: Weight of the field that is subtracted.
        template: Prompt template, for processors without a chat template.
    """

    title = "Focal contrast (HALC-style fields, no detector, no matcher)"

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        box: Sequence[float] = CENTRE,
        growth: float = 0.6,
        count: int = 4,
        weight: float = 0.05,
        template: str | None = None,
    ) -> None:
        super().__init__(anatomy, processor)
        if processor is None:
            raise InputError(
                "focal contrast reads crops of a picture", hint='decoder("focal", model, processor)'
            )
        if count == 1:
            raise InputError(
                "one field has nothing to be contrasted with", hint="give 2 or more, or 0 for none"
            )
        self.boxes = (
            fields(box, in_range("growth", growth, 0), int(in_range("count", count, 0))) if count else []
        )
        self.weight = in_range("weight", weight, 0)
        self.template = template
        self.branches = [
            Branch(anatomy, functools.partial(self.field_inputs, field), f"focal {place}")
            for place, field in enumerate(self.boxes)
        ]

    def request(self, outer: Request | None = None, *, pictures: Any = None, **options: Any) -> Request:
        """A request, with the pictures of its prompts' rows if they are known."""
        super().request(outer, **options)
        return picture_request(self, outer, pictures)

    def attach(self, model: Any, processor: Any) -> PictureSession:
        """Tie this decoder to a model."""
        return PictureSession(model, processor, self)

    def field_inputs(self, box: Sequence[float], forward: ForwardPass) -> dict[str, Any]:
        """The main prompt with a part of each picture in its place."""
        whole = pictures_of(forward.request, self.anatomy, self.processor, forward.inputs, forward.trail)
        parts = [None if picture is None else crop(picture, box) for picture in whole]
        rows = list(enumerate(rows_of(forward.inputs)))
        return with_pictures(
            self.anatomy, self.processor, forward.inputs, rows, parts, template=self.template
        )

    def edit(self, forward: ForwardPass) -> Tensor | None:
        """Contrast the fields of the last columns of rows that have an image."""
        if not self.branches or not any(forward.trail.columns):
            return None
        found = [branch.logits(forward) for branch in self.branches]
        seen = [logits.float() for logits in found if logits is not None]
        if not seen:
            return None
        views = torch.stack(seen)  # (F, B, n, V)
        main = forward.logits[:, -views.shape[2] :].float()
        edited = main.clone()
        for row in forward.image_rows().nonzero().flatten().tolist():
            for column in range(main.shape[1]):
                edited[row, column] = focal(main[row, column], views[:, row, column], self.weight)
        return forward.with_last(edited, forward.image_rows())
