"""ReWEIGH as a decoder: candidates whose evidence falls below their own reference lose at most beta of logit.

Evidence is measured in the prefill that is happening anyway; each later step looks at 50 logits. The edit acts on the
raw logits of the forward pass, so everything ``generate`` does afterwards (penalties, sampling, beams) sees edits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.decoding.request import Deployed, ReweighRequest, check_options
from reweigh.engines.transformers.measure import pair
from reweigh.errors import MismatchError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.points import point_in_use
from reweigh.families.processor import tokenizer_of
from reweigh.method.edit import StepEditor, check_betas, spread
from reweigh.method.evidence import Evidence
from reweigh.method.lens import lens_disagreement
from reweigh.method.trace import Observer, Recorded, Trace
from reweigh.runtime.decoder import Decoder, Pass, Request
from reweigh.runtime.memory import EvidenceCache
from reweigh.runtime.sequence import Batch
from reweigh.tables.point import OperatingPoint
from reweigh.tables.table import ReferenceTable

LENS_TOLERANCE = 0.05
"""Share of the logits' range by which the last block's lens may misorder the model's best tokens (16-bit rounding)."""

Clip = tuple[float | None, float | None]
CLIP: Clip = (0.0, 1.0)
"""Bounds of a strength; an ablation drops one of them."""


class ReWEIGH(Decoder):
    """Evidence at prefill, a bounded edit at each step.

    Args:
        table: A reference table, its folder, or a Hub repository that holds one.
        beta: Maximum penalty in logits; 0 gives the base model's output bit for bit. If not given, that of the point
            recorded with the table, else the paper's for this model; ``point`` says which.
        layer: Which layer's table to take if there are several. If not given, chosen the same way.
        kernel: Ranking kernel, "auto" for the best one present.
        cache: Where the evidence of pictures is kept, so that asking again needs no measurement.
        force: Use a table although its model, tokenizer or dtype differs. The vocabulary must still fit.
        clip: Bounds of a strength; another than (0, 1) is an ablation.
    """

    title = "ReWEIGH"
    grid = (("beta", (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)),)
    is_rival = False
    needs_table = True
    reads_every_step = False
    runs_passes = False

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
        self._watch = anatomy.watch(processor)
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
        return Deployed(found, lens, self.kernel, self.clip, any_dtype=self.force)

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
        else:
            self._check_model(deployed.table)
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

    def record(self) -> dict[str, Any]:
        """Return what a run records: beta, layer and the table's hash."""
        kept = super().record()
        plain = {
            key: value for key, value in kept["options"].items() if key not in ("table", "force", "cache")
        }
        kept["options"] = {**plain, "beta": self.beta, "layer": self.table.layer}
        return {**kept, "table_sha256": self.table.fingerprint}

    def edit(self, forward: Pass) -> Tensor | None:
        """Measure new images, then edit the logits of rows that have evidence."""
        request: ReweighRequest = forward.request  # type: ignore[assignment]
        scratch = forward.batch.scratch
        if not forward.is_step and request.deployed.reader.gather(forward, request.given):
            request.follow(forward.prompts)
            if not self._proved:
                self._prove_lens(forward, request.deployed)
            scratch.clear()  # laid out for fewer images
        if scratch.get("request") is not request:  # a new image or request, or the cache was cropped
            self._lay_out(forward, request)
        editor: StepEditor | None = scratch["editor"]
        if editor is None:  # no row has an image
            return None
        if not request.observers and forward.logits.shape[1] == 1:
            return editor.step(forward.logits.squeeze(1)).logits.unsqueeze(1)
        return self._edit_columns(forward, editor, request.observers)

    def generated(self, batch: Batch) -> None:
        """Refuse a generation on an accelerator some of whose logits formed no distribution."""
        editor: StepEditor | None = batch.scratch.get("editor")
        if editor is not None:
            editor.require_sound()

    def _edit_columns(self, forward: Pass, editor: StepEditor, observers: tuple[Observer, ...]) -> Tensor:
        """Edit several columns at once (a verified draft, a plain forward): those after the row's images."""
        logits = forward.logits.float()
        logits = logits.clone() if logits is forward.logits else logits
        starts = [forward.start_of(row) for row in forward.batch.scratch["rows"]]
        first = torch.tensor(starts, device=logits.device) if len(set(starts)) > 1 else None
        for column in range(min(starts), logits.shape[1]):
            own = editor
            if first is not None and column < max(starts):
                later = (first <= column)[:, None]
                own = StepEditor(editor.strengths * later, editor.betas, editor.rows)
            if observers:
                logits[:, column] = self._observed(logits[:, column], forward, own, observers)
            else:
                logits[:, column] = own(logits[:, column])
        return logits

    def _observed(
        self, logits: Tensor, forward: Pass, editor: StepEditor, observers: tuple[Observer, ...]
    ) -> Tensor:
        """Edit one column and show it to the observers."""
        step = editor.step(logits)
        ids = step.candidates.ids
        recorded = Recorded(
            step.candidates,
            step.shifts,
            forward.batch.scratch["evidence"].gather(1, ids),
            editor.strengths.gather(1, ids),
            logits.argmax(-1),
            step.logits.argmax(-1),
            editor.rows,
        )
        for observer in observers:
            observer.record(recorded)
        return step.logits

    def _lay_out(self, forward: Pass, request: ReweighRequest) -> None:
        """Lay out strengths and penalties of the rows that have evidence, once for each image and request."""
        scratch, reader, device = forward.batch.scratch, request.deployed.reader, forward.logits.device
        places = [place for place, row in enumerate(forward.rows) if row.made is not None]
        rows = [forward.rows[place] for place in places]
        scratch |= {"request": request, "rows": places, "editor": None, "evidence": None}
        if not rows:
            return
        betas = torch.tensor(request.betas(rows, len(forward.prompts)), device=device)
        some = torch.tensor(places, device=device) if len(rows) < len(forward.rows) else None
        strengths = torch.stack([reader.finish(row, device) for row in rows])
        scratch["editor"] = StepEditor(strengths, betas, some)
        if request.observers:
            found = torch.stack([reader.mean(row, reader.layers[0]).to(device) for row in rows])
            tokens = request.deployed.tokens.to(device)
            scratch["evidence"] = spread(found, tokens, request.deployed.lens.vocab_size)

    def _check_model(self, table: ReferenceTable) -> None:
        """Once per request: a model that changed since it was attached must still be the table's."""
        changed = self._watch.changed()
        if changed is None or self.force:
            return
        try:
            pair(self.anatomy, self.processor, table, layer=None)
        except MismatchError as error:
            raise MismatchError(
                f"the model changed after it was attached ({changed}): {error.message}", hint=error.hint
            ) from error
        self._watch = self.anatomy.watch(self.processor)

    @torch.no_grad()
    def _prove_lens(self, forward: Pass, deployed: Deployed) -> None:
        """Once per decoder: the last block read through the lens must agree with the model's own logits."""
        rows = [place for place, row in enumerate(forward.rows) if row.positions]
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


def operating_point(anatomy: Anatomy, table: ReferenceTable, beta: float | None) -> OperatingPoint:
    """Layer and beta in use for a loaded model, with their source."""
    return point_in_use(anatomy.family.name, len(anatomy.blocks), table, beta)
