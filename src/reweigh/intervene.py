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

from reweigh.engines.base import Decoder, Pass
from reweigh.engines.pairing import pair
from reweigh.engines.reader import CLIP, Clip, Reader, Registered
from reweigh.engines.rows import Batch, Row
from reweigh.engines.run import Run
from reweigh.errors import InputError, MismatchError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.points import point_in_use
from reweigh.families.processor import tokenizer_of
from reweigh.method.edit import StepEditor, check_betas, spread
from reweigh.method.evidence import Evidence
from reweigh.method.lens import Lens, lens_disagreement
from reweigh.method.trace import Observer, Recorded, Trace
from reweigh.tables.table import ReferenceTable

LENS_TOLERANCE = 0.05
"""Share of the logits' range by which the last block's lens may misorder the model's best tokens (16-bit rounding)."""


class ReWEIGH(Decoder):
    """Evidence at prefill, a bounded edit at each step.

    Args:
        table: A reference table, its folder, or a Hub repository that holds one.
        beta: Maximum penalty in logits; 0 gives the base model's output bit for bit. If not given, that of the point
            recorded with the table, else the paper's for this model; ``point`` says which.
        layer: Which layer's table to take if there are several. If not given, chosen the same way.
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
        force: bool = False,
        clip: Clip = CLIP,
    ) -> None:
        super().__init__(anatomy, processor)
        self.force = force
        self.clip = clip
        self._watch = anatomy.watch(processor)
        self.table, self.reader = self._deploy(table, layer)
        self.point = point_in_use(anatomy.family.name, len(anatomy.blocks), self.table, beta)
        self.beta = self.point.beta
        self._proved = False  # until then a run also reads the last block, to prove the lens
        self._last_block = len(anatomy.blocks) - 1

    def _deploy(self, table: ReferenceTable | str | Path, layer: int | None) -> tuple[ReferenceTable, Reader]:
        """Return a table, verified against the model, and the reader of its evidence."""
        found, lens = pair(self.anatomy, self.processor, table, layer=layer, force=self.force)
        tokens = torch.from_numpy(found.tokens)
        references = torch.from_numpy(found.references).float()
        dtype = None if self.force else found.about.get("dtype")
        registered = Registered(tokens, references, found.b0, self.clip, dtype)
        reader = Reader(lens, [found.layer], tokens=tokens, readouts=[found.readout], registered=registered)
        return found, reader

    def run(  # type: ignore[override]  # options by name, for editors
        self,
        *,
        beta: float | Sequence[float] | None = None,
        table: ReferenceTable | str | Path | None = None,
        evidence: Sequence[Evidence | None] | None = None,
        trace: bool = False,
        observer: Observer | None = None,
    ) -> Run:
        """Return the settings of one call; see ``Attached.using``."""
        chosen, reader = self.table, self.reader
        if table is not None:
            chosen, reader = self._deploy(table, None)
        else:
            self._check_model(chosen)
        penalty = self.beta if beta is None else check_betas(beta)
        _check_given(evidence, observer)
        steps = self._trace(chosen, penalty) if trace else None
        layers = {chosen.layer} if self._proved else {chosen.layer, self._last_block}
        return Run(
            decoder=self,
            layers=frozenset(layers),
            beta=penalty,
            table=chosen,
            reader=reader,
            known=evidence,
            observers=tuple(one for one in (steps, observer) if one is not None),
            steps=steps,
        )

    def _trace(self, table: ReferenceTable, beta: float | tuple[float, ...]) -> Trace:
        tokenizer = tokenizer_of(self.processor)
        return Trace(
            scale=table.b0,
            beta=beta,
            layer=table.layer,
            references=torch.from_numpy(table.over(self.anatomy.vocab_size)).float(),
            decode=(lambda token: str(tokenizer.decode([token]))) if tokenizer is not None else str,
        )

    def record(self) -> dict[str, Any]:
        """Return what a run records: beta, layer and the table's hash."""
        kept = super().record()
        plain = {key: value for key, value in kept["options"].items() if key not in ("table", "force")}
        kept["options"] = {**plain, "beta": self.beta, "layer": self.table.layer}
        return {**kept, "table_sha256": self.table.fingerprint}

    def edit(self, forward: Pass) -> Tensor | None:
        """Measure new images, then edit the logits of rows that have evidence."""
        prompt, run = forward.prompt, forward.prompt.run
        reader: Any = run.reader
        scratch = prompt.batch.scratch
        if forward.past < prompt.end and reader.gather(forward, run.known):
            run.rows = prompt.rows
            if not self._proved:
                self._prove_lens(forward, reader.lens)
            scratch.clear()  # laid out for fewer images
        if scratch.get("run") is not run:  # a new image or run, or the cache was cropped
            self._lay_out(forward, run)
        editor: StepEditor | None = scratch["editor"]
        if editor is None:  # no row has an image
            return None
        if not run.observers and forward.logits.shape[1] == 1:
            return editor.step(forward.logits.squeeze(1)).logits.unsqueeze(1)
        return self._edit_columns(forward, editor, run.observers)

    def generated(self, batch: Batch) -> None:
        """Refuse a generation on an accelerator some of whose logits formed no distribution."""
        editor: StepEditor | None = batch.scratch.get("editor")
        if editor is not None:
            editor.require_sound()

    def _edit_columns(self, forward: Pass, editor: StepEditor, observers: tuple[Observer, ...]) -> Tensor:
        """Edit several columns at once (a verified draft, a plain forward): those after the row's images."""
        logits = forward.logits.float()
        logits = logits.clone() if logits is forward.logits else logits
        starts = [forward.start_of(row) for row in forward.prompt.batch.scratch["rows"]]
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
            forward.prompt.batch.scratch["evidence"].gather(1, ids),
            editor.strengths.gather(1, ids),
            logits.argmax(-1),
            step.logits.argmax(-1),
            editor.rows,
        )
        for observer in observers:
            observer.record(recorded)
        return step.logits

    def _lay_out(self, forward: Pass, run: Run) -> None:
        """Lay out strengths and penalties of the rows that have evidence, once for each image and run."""
        table: Any = run.table
        reader: Any = run.reader
        scratch, device = forward.prompt.batch.scratch, forward.logits.device
        for row in forward.rows:
            row.check_read(forward.past + forward.length)
        places = [place for place, row in enumerate(forward.rows) if row.reading is not None]
        rows = [forward.rows[place] for place in places]
        scratch |= {"run": run, "rows": places, "editor": None, "evidence": None}
        if not rows:
            return
        betas = torch.tensor(_betas(run.beta, rows, len(forward.prompt.rows)), device=device)
        some = torch.tensor(places, device=device) if len(rows) < len(forward.rows) else None
        strengths = torch.stack([reader.finish(row, device) for row in rows])
        scratch["editor"] = StepEditor(strengths, betas, some)
        if run.observers:
            found = torch.stack([reader.mean(row, reader.layers[0]).to(device) for row in rows])
            tokens = torch.from_numpy(table.tokens).to(device)
            scratch["evidence"] = spread(found, tokens, reader.lens.vocab_size)

    def _check_model(self, table: ReferenceTable) -> None:
        """Refuse a model that changed since it was attached and is no longer the table's; once per run."""
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
    def _prove_lens(self, forward: Pass, lens: Lens) -> None:
        """Prove once that the last block, read through the lens, agrees with the model's own logits."""
        rows = [place for place, row in enumerate(forward.rows) if row.positions]
        stream = forward.states[self._last_block][rows, -1]
        own = forward.logits[rows, -1].float()
        gap = lens_disagreement(lens.read(stream).to(own.device), own)
        if not gap <= LENS_TOLERANCE:
            raise UnsupportedError(
                f"norm and head of {type(self.anatomy.model).__name__} do not reproduce its logits "
                f"(they misorder its best tokens by {gap:.0%} of the logits' range)",
                hint="its output path is not the usual one; run `reweigh doctor` and report the class",
            )
        self._proved = True


def _betas(beta: float | tuple[float, ...], rows: Sequence[Row], prompts: int) -> list[float]:
    """Return the penalties of some rows of a batch of ``prompts`` prompts."""
    if not isinstance(beta, tuple):
        return [beta] * len(rows)
    if len(beta) != prompts:
        raise InputError(
            f"{len(beta)} betas were given for a prompt of {prompts} rows",
            hint="pass one number, or one for each row",
        )
    return [beta[row.index] for row in rows]


def _check_given(evidence: Any, observer: Any) -> None:
    """Refuse evidence and observers that would fail at the first step."""
    if isinstance(evidence, Evidence):
        raise InputError("a single Evidence was given", hint="pass a list, one for each row of the prompt")
    for one in evidence or ():
        if not isinstance(one, Evidence | None):
            raise InputError(
                f"evidence contains a {type(one).__name__}",
                hint="pass what `reweigh.measure` or `run.evidence` returned",
            )
    if observer is not None and not callable(getattr(observer, "record", None)):
        raise InputError(f"observer is a {type(observer).__name__} without a method `record`")
