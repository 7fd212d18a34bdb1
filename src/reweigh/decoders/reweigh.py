"""Attach ReWEIGH to a transformers model: the user's own ``generate`` call, edited.

    rw = reweigh.attach(model, processor, table="my-table", beta=1.1)
    with rw:
        model.generate(**inputs)

Evidence is measured in the prefill that is happening anyway; each later step looks at 50 logits. The edit acts on the
raw logits of the forward pass, so everything ``generate`` does afterwards (penalties, sampling, beams) sees edits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from reweigh.engines.cache import EvidenceCache
from reweigh.engines.transformers.pairing import pair
from reweigh.engines.transformers.recall import Recall
from reweigh.engines.transformers.session import Attachment
from reweigh.engines.transformers.tap import Glimpse, Trail
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.method.intervene.edit import check_beta, edit, put_rows, shifts, spread, strength
from reweigh.method.intervene.trace import Recorded, Trace
from reweigh.method.measure.evidence import Evidence, Gatherer
from reweigh.method.measure.lens import Lens, lens_disagreement
from reweigh.method.register.candidates import candidates
from reweigh.method.register.table import ReferenceTable

if TYPE_CHECKING:
    from PIL.Image import Image

BETA = 1.1
"""The paper's most common maximum penalty."""

LENS_TOLERANCE = 0.05
"""Share of the logits' range by which the last block's lens may misorder the model's best tokens (16-bit rounding)."""


class Observer(Protocol):
    """Whoever is shown every step."""

    def record(self, recorded: Recorded) -> None:
        """Look at one step."""
        ...


@dataclass(frozen=True, slots=True)
class _Held:
    """What is kept on the device for the steps after an image.

    Attributes:
        evidence: DMRR (n, V) of the n forward rows that have evidence, zero where not registered.
        strengths: s (n, V) of the same rows.
        prompts: Their prompt rows, in order.
        rows: Their places among the forward rows; ``None`` if all have evidence.
    """

    evidence: Tensor
    strengths: Tensor
    prompts: list[int]
    rows: Tensor | None


class Reweigh:
    """ReWEIGH as a listener of forward passes: evidence at prefill, a bounded edit at each step."""

    def __init__(
        self, anatomy: Anatomy, table: ReferenceTable, beta: float, *, lens: Lens, kernel: str = "auto"
    ) -> None:
        self.anatomy = anatomy
        self.table = table
        self.beta = check_beta(beta)
        self.lens = lens
        self.gatherer = Gatherer(lens, [table.layer], tokens=table.tokens.tolist(), kernel=kernel)
        self.tokens = torch.from_numpy(table.tokens)
        self.references = torch.from_numpy(table.references).float()
        self.layers = frozenset({table.layer, len(anatomy.blocks) - 1})
        self.trace: Observer | None = None
        self._proved = False

    def listen(self, glimpse: Glimpse) -> Tensor | None:
        """Measure new visual positions, then edit the logits of rows that have evidence."""
        if self.gatherer.gather(glimpse):
            self._prove_lens(glimpse)
            glimpse.trail.memory.clear()  # held of fewer images
        elif not glimpse.trail.segments:
            return None
        held = self._held(glimpse)
        if glimpse.logits.shape[1] == 1:
            return self._edit(glimpse.logits[:, 0], held, held.strengths)[:, None]
        return self._edit_columns(glimpse, held)

    def strength(self, references: Tensor, evidence: Tensor) -> Tensor:
        """Suppression strength of each registered token (R,); an ablation may say otherwise."""
        return strength(references, evidence, self.table.scale)

    def _edit(self, logits: Tensor, held: _Held, strengths: Tensor) -> Tensor:
        own = logits if held.rows is None else logits[held.rows]
        before = logits.argmax(-1) if self.trace is not None else None
        chosen = candidates(own)
        shift = shifts(chosen, strengths, self.beta)
        edited = edit(own, chosen, shift)
        if held.rows is not None:
            edited = put_rows(logits, held.rows, edited)
        if self.trace is not None and before is not None:
            self.trace.record(
                Recorded(
                    chosen,
                    held.evidence.gather(1, chosen.ids),
                    strengths.gather(1, chosen.ids),
                    shift,
                    before,
                    edited.argmax(-1),
                    held.rows,
                )
            )
        return edited

    def _edit_columns(self, glimpse: Glimpse, held: _Held) -> Tensor:
        """Several columns at once (a verified draft, a plain forward): those after the row's images are edited."""
        logits = glimpse.logits.float()
        logits = logits.clone() if logits is glimpse.logits else logits
        starts = [glimpse.start_of(row) for row in held.prompts for _ in range(glimpse.repeat)]
        first = torch.tensor(starts, device=logits.device) if len(set(starts)) > 1 else None
        for column in range(min(starts), logits.shape[1]):
            strengths = held.strengths
            if first is not None and column < max(starts):
                strengths = strengths * (first <= column)[:, None]
            logits[:, column] = self._edit(logits[:, column].clone(), held, strengths)
        return logits

    def _held(self, glimpse: Glimpse) -> _Held:
        """Evidence and strengths of the rows that have evidence, laid out once for each image."""
        trail, repeat = glimpse.trail, glimpse.repeat
        name = f"reweigh x{repeat}"
        if name not in trail.memory:  # a new image, or the cache was cropped and some are gone
            trail.memory[name] = self._lay_out(trail, repeat, glimpse.logits.device)
        held: _Held = trail.memory[name]
        return held

    def _lay_out(self, trail: Trail, repeat: int, device: torch.device) -> _Held:
        sums = {row: found for row, found in enumerate(self.gatherer.sums(trail)) if found is not None}
        tokens, references = self.tokens.to(device), self.references.to(device)
        evidence = torch.stack([found[0].dmrr().to(device) for found in sums.values()])
        strengths = torch.stack([self.strength(references, one) for one in evidence])
        laid_out = [
            spread(values, tokens, self.anatomy.vocab_size).repeat_interleave(repeat, dim=0)
            for values in (evidence, strengths)
        ]
        rows = [row * repeat + i for row in sums for i in range(repeat)]
        index = None if len(sums) == len(trail.columns) else torch.tensor(rows, device=device)
        return _Held(laid_out[0], laid_out[1], list(sums), index)

    @torch.no_grad()
    def _prove_lens(self, glimpse: Glimpse) -> None:
        """Once per attachment: the last block read through the lens must agree with the model's own logits."""
        if self._proved:
            return
        rows = [row * glimpse.repeat for row, columns in enumerate(glimpse.trail.columns) if columns]
        stream = glimpse.states[len(self.anatomy.blocks) - 1][rows, -1]
        own = glimpse.logits[rows, -1].float()
        gap = lens_disagreement(self.lens.read(stream).to(own.device), own)
        if not gap <= LENS_TOLERANCE:
            raise UnsupportedError(
                f"norm and head of {type(self.anatomy.model).__name__} do not reproduce its logits "
                f"(they misorder its best tokens by {gap:.0%} of the logits' range)",
                hint="its output path is not the usual one; run `reweigh doctor` and report the class",
            )
        self._proved = True


class ReweighAttachment(Attachment):
    """ReWEIGH tied to one model. Made by ``attach``."""

    decoder: Reweigh
    recall: Recall | None = None

    @property
    def table(self) -> ReferenceTable:
        """The reference table in use."""
        return self.decoder.table

    @property
    def layer(self) -> int:
        """The 0-based block that is read."""
        return self.decoder.table.layer

    @property
    def beta(self) -> float:
        """The maximum penalty."""
        return self.decoder.beta

    @contextmanager
    def tracing(self) -> Iterator[Trace]:
        """Record every step that is decoded inside this context."""
        tokenizer = getattr(self.processor, "tokenizer", self.processor)
        references = torch.full((self.decoder.anatomy.vocab_size,), float("nan"))
        references[self.decoder.tokens] = self.decoder.references
        trace = Trace(
            scale=self.table.scale,
            beta=self.beta,
            layer=self.layer,
            references=references,
            decode=(lambda token: str(tokenizer.decode([token]))) if tokenizer is not None else str,
        )
        with self.watched_by(trace):
            yield trace

    @contextmanager
    def watched_by(self, observer: Observer) -> Iterator[None]:
        """Show every step that is decoded inside this context to an observer."""
        self.decoder.trace = observer
        try:
            yield
        finally:
            self.decoder.trace = None

    @contextmanager
    def using(self, evidence: Sequence[Evidence | None]) -> Iterator[None]:
        """Inside this context take the prompt's evidence as given, one per row, instead of measuring it.

        This holds for generations of the same thread.
        """
        if isinstance(evidence, Evidence):
            raise InputError("one Evidence was given", hint="give a list, one for each row of the prompt")
        here = self.decoder.gatherer.here
        before, here.given = here.given, list(evidence)
        try:
            yield
        finally:
            here.given = before

    @contextmanager
    def noting(self) -> Iterator[list[Evidence | None]]:
        """Inside this context note the evidence of the latest prompt's rows that this thread asks about."""
        here = self.decoder.gatherer.here
        noted: list[Evidence | None] = []
        here.noted = noted
        try:
            yield noted
        finally:
            here.noted = None

    def _serving(self, pictures: list[Image], inputs: dict[str, Any]) -> AbstractContextManager[None]:
        return nullcontext() if self.recall is None else self.recall.serving(pictures, inputs)


def attach(
    model: Any,
    processor: Any = None,
    *,
    table: ReferenceTable | str | Path,
    beta: float = BETA,
    layer: int | None = None,
    kernel: str = "auto",
    cache: EvidenceCache | None = None,
    force: bool = False,
) -> ReweighAttachment:
    """Tie ReWEIGH to a model.

    Args:
        model: A transformers vision-language model.
        processor: Its processor; needed for ``describe`` and to check the table's tokenizer.
        table: A reference table, its folder, or a Hub repository that holds one.
        beta: Maximum penalty in logits; 0 gives the base model's output bit for bit.
        layer: Which layer's table to take where there are several; must match the table.
        kernel: Ranking kernel, "auto" for the best one present.
        cache: Where ``describe`` keeps the evidence of pictures, to be asked about again without measuring.
        force: Use a table although its model, tokenizer or dtype seems to be another. The vocabulary must still fit.
    """
    anatomy = find_anatomy(model)
    beta = check_beta(beta)
    table, lens = pair(anatomy, processor, table, layer=layer, force=force)
    attached = ReweighAttachment(model, processor, Reweigh(anatomy, table, beta, lens=lens, kernel=kernel))
    if cache is not None:
        attached.recall = Recall(attached, cache)
    return attached
