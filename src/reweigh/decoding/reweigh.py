"""ReWEIGH as a decoder: candidates whose evidence falls below their own reference lose at most beta of logit.

Evidence is measured in the prefill that is happening anyway; each later step looks at 50 logits. The edit acts on the
raw logits of the forward pass, so everything ``generate`` does afterwards (penalties, sampling, beams) sees edits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.decoding.request import Deployed, ReweighRequest, check_options
from reweigh.engines.transformers.pairing import pair
from reweigh.engines.transformers.trail import Trail
from reweigh.errors import MismatchError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.points import point_in_use
from reweigh.families.processor_parts import tokenizer_of
from reweigh.families.watch import Watch
from reweigh.method.edit import StepEditor, check_betas, spread
from reweigh.method.evidence import Evidence
from reweigh.method.lens import lens_disagreement
from reweigh.method.strength import strength
from reweigh.method.trace import Observer, Recorded, Trace
from reweigh.runtime.decoder import Decoder, ForwardPass, Request
from reweigh.runtime.memory import EvidenceCache
from reweigh.tables.point import OperatingPoint
from reweigh.tables.table import ReferenceTable

if TYPE_CHECKING:
    from reweigh.decoding.attach import ReweighSession

LENS_TOLERANCE = 0.05
"""Share of the logits' range by which the last block's lens may misorder the model's best tokens (16-bit rounding)."""

Clip = tuple[float | None, float | None]
CLIP: Clip = (0.0, 1.0)
"""Bounds of a strength; an ablation drops one of them."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """What is kept on the device for the steps after an image.

    Attributes:
        editor: Strengths and penalties of the n forward rows that have evidence.
        evidence: DMRR (n, V) of the same rows, zero where not registered; kept for observers only.
        prompts: Their prompt rows, in order.
    """

    editor: StepEditor
    evidence: Tensor | None
    prompts: list[int]


class ReWEIGH(Decoder):
    """Evidence at prefill, a bounded edit at each step.

    Args:
        table: A reference table, its folder, or a Hub repository that holds one.
        beta: Maximum penalty in logits; 0 gives the base model's output bit for bit. If not given, that of the point
            recorded with the table, else the paper's for this model; ``point`` says which.
        layer: Which layer's table to take where there are several; must match the table. If not given, chosen alike.
        kernel: Ranking kernel, "auto" for the best one present.
        cache: Where evidence of pictures is kept, to be asked about again without measuring.
        force: Use a table although its model, tokenizer or dtype seems to be another. The vocabulary must still fit.
        clip: Bounds of a strength; another than (0, 1) is an ablation.
    """

    title = "ReWEIGH"
    is_rival = False
    needs_table = True
    reads_every_step = False

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        table: ReferenceTable | str | Path,
        beta: float | None = None,
        layer: int | None = None,
        kernel: str = "auto",
        cache: EvidenceCache | None = None,
        force: bool = False,
        clip: Clip = CLIP,
    ) -> None:
        super().__init__(anatomy, processor)
        self.kernel = kernel
        self.cache = cache
        self.force = force
        self.clip = clip
        self._source = table
        self._watch = Watch(anatomy.model, processor)
        self.deployed = self._deploy(table, layer)
        self.point = operating_point(anatomy, self.deployed.table, beta)
        self.beta = self.point.beta
        self._proved = False  # until then a request also reads the last block, to prove the lens
        self._last_block = len(anatomy.blocks) - 1

    @property
    def table(self) -> ReferenceTable:
        """The reference table of requests that name no other."""
        return self.deployed.table

    def _deploy(self, table: ReferenceTable | str | Path, layer: int | None) -> Deployed:
        found, lens = pair(self.anatomy, self.processor, table, layer=layer, force=self.force)
        return Deployed(found, lens, self.kernel)

    def request(  # type: ignore[override]  # options by name, for editors
        self,
        outer: Request | None = None,
        *,
        beta: float | Sequence[float] | None = None,
        layer: int | None = None,
        table: ReferenceTable | str | Path | None = None,
        evidence: Sequence[Evidence | None] | None = None,
        trace: bool = False,
        observer: Observer | None = None,
    ) -> ReweighRequest:
        """Settings of one caller; see ``ReweighSession.request``."""
        around = outer if isinstance(outer, ReweighRequest) else None
        deployed = self.deployed if around is None else around.deployed
        if table is not None or layer not in (None, deployed.table.layer):
            deployed = self._deploy(self._source if table is None else table, layer)
        if beta is None:
            bound: float | tuple[float, ...] = self.beta if around is None else around.beta
        else:
            bound = check_betas(beta)
        check_options(evidence, observer)
        given = around.given if evidence is None and around is not None else evidence
        recorded = self._trace(deployed, bound) if trace else None
        observers = () if around is None else around.observers
        observers += tuple(one for one in (recorded, observer) if one is not None)
        layers = {deployed.table.layer} if self._proved else {deployed.table.layer, self._last_block}
        return ReweighRequest(self, frozenset(layers), deployed, bound, given, observers, recorded, around)

    def _trace(self, deployed: Deployed, beta: float | tuple[float, ...]) -> Trace:
        tokenizer = tokenizer_of(self.processor)
        return Trace(
            scale=deployed.table.scale,
            beta=beta,
            layer=deployed.table.layer,
            references=deployed.reference_vector(),
            decode=(lambda token: str(tokenizer.decode([token]))) if tokenizer is not None else str,
        )

    def attach(self, model: Any, processor: Any) -> ReweighSession:
        """Tie this decoder to a model."""
        from reweigh.decoding.attach import ReweighSession

        return ReweighSession(model, processor, self)

    def record(self) -> dict[str, Any]:
        """What the record of a run keeps: beta, layer and the table's hash."""
        kept = super().record()
        plain = {
            key: value for key, value in kept["options"].items() if key not in ("table", "force", "cache")
        }
        kept["options"] = {**plain, "beta": self.beta, "layer": self.table.layer}
        return {**kept, "table_sha256": self.table.fingerprint}

    def edit(self, forward: ForwardPass) -> Tensor | None:
        """Measure new visual positions, then edit the logits of rows that have evidence."""
        request: ReweighRequest = forward.request  # type: ignore[assignment]
        if not forward.is_step and any(forward.new_columns()):
            self._check_model(request.deployed.table)  # first: another head could not be read
            request.deployed.gatherer.gather(forward, request.given)
            request.follow(forward.trail)
            self._prove_lens(forward, request.deployed)
            forward.trail.memory.clear()  # laid out for fewer images
        elif not forward.trail.segments:
            return None
        laid_out = self._laid_out(forward, request)
        logits, observers = forward.logits, request.observers
        if not observers and logits.shape[1] == 1:
            return laid_out.editor(logits)
        return self._edit_columns(forward, laid_out, observers)

    def _edit(
        self, logits: Tensor, laid_out: _Layout, editor: StepEditor, observers: tuple[Observer, ...]
    ) -> Tensor:
        if not observers or laid_out.evidence is None:
            return editor(logits)
        step = editor.step(logits)
        ids = step.candidates.ids
        recorded = Recorded(
            step.candidates,
            step.shifts,
            laid_out.evidence.gather(1, ids),
            editor.strengths.gather(1, ids),
            logits.argmax(-1),
            step.logits.argmax(-1),
            editor.rows,
        )
        for observer in observers:
            observer.record(recorded)
        return step.logits

    def _edit_columns(
        self, forward: ForwardPass, laid_out: _Layout, observers: tuple[Observer, ...]
    ) -> Tensor:
        """Several columns at once (a verified draft, a plain forward): those after the row's images are edited."""
        logits = forward.logits.float()
        logits = logits.clone() if logits is forward.logits else logits
        starts = [forward.start_of(row) for row in laid_out.prompts for _ in range(forward.repeat)]
        first = torch.tensor(starts, device=logits.device) if len(set(starts)) > 1 else None
        for column in range(min(starts), logits.shape[1]):
            editor = laid_out.editor
            if first is not None and column < max(starts):
                later = (first <= column)[:, None]
                editor = StepEditor(editor.strengths * later, editor.betas, editor.rows)
            logits[:, column] = self._edit(logits[:, column], laid_out, editor, observers)
        return logits

    def _laid_out(self, forward: ForwardPass, request: ReweighRequest) -> _Layout:
        """Strengths and penalties of the rows that have evidence, laid out once for each image and request."""
        memory, owner = forward.trail.memory, (request.number, forward.repeat)
        if memory.get("owner") != owner:  # a new image or request, or the cache was cropped and some are gone
            memory["layout"], memory["owner"] = self._lay_out(forward, request), owner
        laid_out: _Layout = memory["layout"]
        return laid_out

    def _lay_out(self, forward: ForwardPass, request: ReweighRequest) -> _Layout:
        trail, repeat, device = forward.trail, forward.repeat, forward.logits.device
        deployed, (low, high) = request.deployed, self.clip
        prompts, evidence = deployed.gatherer.stacked(trail, device)
        betas = request.betas(prompts, len(trail.columns), repeat, device)
        some = len(prompts) < len(trail.columns)
        rows = [row * repeat + i for row in prompts for i in range(repeat)] if some else []
        tokens, references = deployed.tokens.to(device), deployed.references.to(device)
        strengths = strength(references, evidence, deployed.table.scale, low=low, high=high)
        strengths = spread(strengths, tokens, deployed.lens.vocab_size)
        seen = spread(evidence, tokens, deployed.lens.vocab_size) if request.observers else None
        if repeat > 1:
            strengths = strengths.repeat_interleave(repeat, dim=0)
            seen = None if seen is None else seen.repeat_interleave(repeat, dim=0)
        editor = StepEditor(strengths, betas, torch.tensor(rows, device=device) if some else None)
        return _Layout(editor, seen, prompts)

    def _check_model(self, table: ReferenceTable) -> None:
        """Once per image: a model that changed since it was attached must still be the table's."""
        changed = self._watch.changed()
        if changed is None or self.force:
            return
        try:
            pair(self.anatomy, self.processor, table, layer=None)
        except MismatchError as error:
            raise MismatchError(
                f"the model changed after it was attached ({changed}): {error.message}", hint=error.hint
            ) from error
        self._watch = Watch(self.anatomy.model, self.processor)

    @torch.no_grad()
    def _prove_lens(self, forward: ForwardPass, deployed: Deployed) -> None:
        """Once per decoder: the last block read through the lens must agree with the model's own logits."""
        self._check_dtype(forward.trail, deployed)
        if self._proved:
            return
        rows = [row * forward.repeat for row, columns in enumerate(forward.trail.columns) if columns]
        stream = forward.states[self._last_block][rows, -1]
        own = forward.logits[rows, -1].float()
        gap = lens_disagreement(deployed.lens.read(stream).to(own.device), own)
        if not gap <= LENS_TOLERANCE:
            raise UnsupportedError(
                f"norm and head of {type(self.anatomy.model).__name__} do not reproduce its logits "
                f"(they misorder its best tokens by {gap:.0%} of the logits' range)",
                hint="its output path is not the usual one; run `reweigh doctor` and report the class",
            )
        self._proved = True

    def _check_dtype(self, trail: Trail, deployed: Deployed) -> None:
        """The logits that were just ranked must have the table's type; autocast may have changed it."""
        recorded = deployed.table.made_with.get("dtype")
        for row in trail.segments[-1].value:
            if row is None or recorded is None or self.force:
                continue
            found = row[deployed.table.layer].dtype
            if found != recorded:
                raise MismatchError(
                    f"this table was made from {recorded} logits, but the head gives {found} here",
                    hint="leave autocast out, load the model in the table's dtype, or calibrate as it is run",
                )


def operating_point(anatomy: Anatomy, table: ReferenceTable, beta: float | None) -> OperatingPoint:
    """Layer and beta in use for a loaded model, with their source."""
    return point_in_use(anatomy.family.name, len(anatomy.blocks), table, beta)
