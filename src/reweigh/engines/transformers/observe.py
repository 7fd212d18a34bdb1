"""Calibration's view of a model: greedy descriptions, the candidates of every step, and the evidence of every image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.transformers.manager import HookManager
from reweigh.engines.transformers.measure import Measuring
from reweigh.engines.transformers.session import end_tokens
from reweigh.errors import CalibrationError, InputError
from reweigh.families.anatomy import Anatomy
from reweigh.method.edit import candidates
from reweigh.method.evidence import Evidence
from reweigh.method.lens import Lens
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.runtime.decoder import Decoder
from reweigh.runtime.forward import Pass
from reweigh.runtime.reader import Reader
from reweigh.tables.observations import ImageObservations, count_candidates


class _Observer(Measuring):
    """Edits nothing: reads evidence and keeps every step's candidates."""

    def __init__(self, anatomy: Anatomy, reader: Reader) -> None:
        super().__init__(anatomy, reader)
        self.steps: list[tuple[Tensor, Tensor]] = []

    def edit(self, forward: Pass) -> None:
        super().edit(forward)
        chosen = candidates(forward.logits[:, -1])
        self.steps.append((chosen.ids, chosen.keep))


def observe(
    anatomy: Anatomy,
    lens: Lens,
    layers: Sequence[int],
    keys: Sequence[str],
    inputs: Mapping[str, Any],
    *,
    max_new_tokens: int,
    kernel: str = "auto",
    readout: str = DMRR,
) -> list[ImageObservations]:
    """Decode one batch greedily and turn it into observations, one per row; a matched readout keeps DMRR beside it."""
    beside = READOUTS[readout].matched
    readouts = (readout, DMRR) if beside else (readout,)
    reader = Reader(lens, layers, kernel=kernel, readouts=readouts)
    observer = _Observer(anatomy, reader)
    sequences = generate_greedily(observer, inputs, max_new_tokens=max_new_tokens)
    if not observer.steps:
        raise CalibrationError("generate made no forward pass")
    generated = sequences[:, -len(observer.steps) :]
    ids = torch.stack([step[0] for step in observer.steps], dim=1).cpu().numpy()
    keep = torch.stack([step[1] for step in observer.steps], dim=1).cpu().numpy()
    lengths = answer_lengths(generated, end_tokens(anatomy.language_model))
    found = [reader.evidence(row) for row in observer.rows]
    ranks = [reader.evidence(row, DMRR) if beside else None for row in observer.rows]
    rows = []
    for row, evidence in enumerate(found):
        if evidence is None:
            raise InputError(
                "the calibration prompt holds no image", hint="put the image placeholder in the template"
            )
        token, count = count_candidates(ids[row, : lengths[row]], keep[row, : lengths[row]])
        own, other = (_of(one, token) for one in (evidence, ranks[row]))
        rows.append(ImageObservations(keys[row], token, count, own, other))
    return rows


def generate_greedily(watcher: Decoder, inputs: Mapping[str, Any], *, max_new_tokens: int) -> Tensor:
    """The unmodified model's greedy answers, prompt included, with every forward pass shown to ``watcher``."""
    model = watcher.anatomy.model
    with HookManager.of(watcher.anatomy).serving(watcher.request()), torch.no_grad():
        output = model.generate(
            **inputs,
            do_sample=False,
            num_beams=1,
            num_return_sequences=1,
            temperature=None,
            top_p=None,
            top_k=None,
            max_new_tokens=max_new_tokens,
            prefill_chunk_size=None,  # each pass that is noted must be a decoding step
        )
    sequences: Tensor = getattr(output, "sequences", output)
    return sequences


def _of(evidence: Evidence | None, token: Any) -> Any:
    return None if evidence is None else evidence.values.cpu().numpy()[:, token]


def answer_lengths(generated: Tensor, ends: Sequence[int]) -> list[int]:
    """Steps of each row up to and including its end-of-sequence token."""
    stopped = torch.isin(generated, torch.tensor(ends, dtype=generated.dtype, device=generated.device))
    first = torch.where(stopped.any(1), stopped.int().argmax(1) + 1, generated.shape[1])
    return [int(length) for length in first]
