"""ReWEIGH tied to a model: ``reweigh.attach`` and what it returns.

rw = reweigh.attach(model, processor, table="my-table")
with rw:
    model.generate(**inputs)
rw.generate(**inputs)  # the same for one call
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from reweigh.engines.opening import open_engine
from reweigh.engines.run import Run
from reweigh.engines.session import Session
from reweigh.intervene import ReWEIGH
from reweigh.method.evidence import Evidence
from reweigh.method.trace import Observer
from reweigh.tables.point import OperatingPoint
from reweigh.tables.table import ReferenceTable
from reweigh.text import facts


class Attached(Session):
    """ReWEIGH tied to one model. Made by ``attach``."""

    decoder: ReWEIGH

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

    @property
    def point(self) -> OperatingPoint:
        """Layer and beta in use, and where they come from."""
        return self.decoder.point

    def __repr__(self) -> str:
        name = type(self.decoder.anatomy.model).__name__
        return f"<ReWEIGH on {name}: {self.point}, {len(self.table):,} registered tokens>"

    def _repr_html_(self) -> str:
        about = {
            "model": type(self.decoder.anatomy.model).__name__,
            "layer": self.layer,
            "beta": f"{self.beta:g}",
        }
        about |= {"chosen": self.point.source, "registered tokens": f"{len(self.table):,}"}
        return facts("ReWEIGH", about)

    def using(  # type: ignore[override]  # options by name, for editors
        self,
        *,
        beta: float | Sequence[float] | None = None,
        table: ReferenceTable | str | Path | None = None,
        evidence: Sequence[Evidence | None] | None = None,
        trace: bool = False,
        observer: Observer | None = None,
    ) -> AbstractContextManager[Run]:
        """Decode inside a block with settings of its own; the block's ``Run`` keeps trace and evidence.

        Args:
            beta: Maximum penalty, or one for each row of the prompt; rows of 0 are the base model's, bit for bit.
            table: Another reference table, its folder, or a Hub repository.
            evidence: Evidence to use instead of measuring it, one for each row of the prompt; a row of ``None`` is
                measured.
            trace: Record every step in ``run.trace``.
            observer: Is shown every step.

        Examples:
            >>> import reweigh
            >>> from reweigh import world
            >>> from reweigh.world.render import render
            >>> from reweigh.world.scenes import scene
            >>> model, processor = reweigh.load(world.path())
            >>> rw = reweigh.attach(model, processor, table=world.table_path())
            >>> with rw.using(beta=0.5, trace=True) as run:
            ...     text = rw.describe(render(scene("evaluation", 3), 112), max_new_tokens=4)
            >>> text, len(run.trace)
            ('The image shows a', 4)
        """
        options: dict[str, Any] = {"beta": beta, "table": table, "evidence": evidence}
        return super().using(**options, trace=trace, observer=observer)


ReWEIGH.session = Attached


def attach(
    model: Any,
    processor: Any = None,
    *,
    table: ReferenceTable | str | Path,
    beta: float | None = None,
    layer: int | None = None,
    force: bool = False,
) -> Attached:
    """Tie ReWEIGH to a model.

    Args:
        model: A transformers vision-language model, or one of mlx-vlm.
        processor: Its processor, which ``describe`` needs and whose tokenizer the table must match. If not given, the
            one stored with the model, found by the name or path that it was loaded from; not on MLX.
        table: A reference table, its folder, or a Hub repository that holds one.
        beta: Maximum penalty in logits; 0 gives the base model's output bit for bit. If not given, that of the point
            recorded with the table, else the paper's for this model; ``rw.point`` says which.
        layer: Which layer's table to take if there are several. If not given, chosen the same way.
        force: Use a table although its model, tokenizer or dtype differs. The vocabulary must still fit.

    Examples:
        >>> import reweigh
        >>> from reweigh import world
        >>> from reweigh.world.render import render
        >>> from reweigh.world.scenes import scene
        >>> model, processor = reweigh.load(world.path())
        >>> picture = render(scene("evaluation", 3), 112)
        >>> rw = reweigh.attach(model, processor, table=world.table_path())
        >>> rw.describe(picture, max_new_tokens=12)
        'The image shows a market with a banana and a bowl.'
    """
    engine = open_engine(model, processor)
    decoder = ReWEIGH(
        engine.anatomy,
        engine.processor,
        table=table,
        beta=beta,
        layer=layer,
        force=force,
    )
    decoder.name = "reweigh"
    return Attached(engine, decoder)
