"""ReWEIGH tied to a model: ``reweigh.attach`` and what it returns.

rw = reweigh.attach(model, processor, table="my-table")
with rw:
    model.generate(**inputs)
model.generate(**inputs, custom_generate=rw)  # the same for one call
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from reweigh.engines.answer import Answer
from reweigh.engines.session import Session
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy, find_anatomy, is_mlx
from reweigh.families.processor import processor_of
from reweigh.images import read_image
from reweigh.intervene import ReWEIGH, ReweighRequest
from reweigh.method.evidence import Evidence
from reweigh.method.trace import Observer
from reweigh.tables.point import OperatingPoint
from reweigh.tables.table import ReferenceTable
from reweigh.text import Template, facts


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

    def request(  # type: ignore[override]  # options by name, for editors
        self,
        *,
        beta: float | Sequence[float] | None = None,
        layer: int | None = None,
        table: ReferenceTable | str | Path | None = None,
        evidence: Sequence[Evidence | None] | None = None,
        trace: bool = False,
        observer: Observer | None = None,
    ) -> AbstractContextManager[ReweighRequest]:
        """Open a request with settings of its own; what is not given is taken from the request it is nested in.

        Args:
            beta: Maximum penalty, or one for each row of the prompt; rows of 0 are the base model's, bit for bit.
            layer: Another layer of the table's folder.
            table: Another reference table, its folder, or a Hub repository.
            evidence: Evidence measured before, one for each row of the prompt; a row of ``None`` is measured.
            trace: Record every step in ``request.trace``.
            observer: Is shown every step.
        """
        options = {"beta": beta, "layer": layer, "table": table, "evidence": evidence}
        return super().request(**options, trace=trace, observer=observer)


ReWEIGH.session = Attached


class MlxSession(Attached):
    """ReWEIGH tied to one mlx-vlm model. Made by ``attach``."""

    def __init__(self, model: Any, processor: Any, decoder: Any) -> None:
        from reweigh.engines.mlx.hooks import MlxHooks

        self.hooks = MlxHooks
        super().__init__(model, processor, decoder)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``mlx_vlm.generate`` with this decoder, in a request of its own."""
        from mlx_vlm import generate

        with self.request():
            return generate(self.model, self.processor, *args, **kwargs)

    def prepare(
        self, pictures: Sequence[Any], prompts: Sequence[str], *, template: Template | None = None
    ) -> dict[str, Any]:
        """Build the arguments of mlx-vlm's ``generate`` for one picture, or none, and a prompt."""
        if len(pictures) != 1 or len(prompts) != 1:
            raise UnsupportedError("one prompt at a time on MLX", hint="prepare each row by itself")
        from reweigh.engines.mlx.generation import build_row

        anatomy: Any = self.decoder.anatomy
        return build_row(anatomy, self.processor, pictures[0], prompts[0], template=template)

    def answer(
        self,
        images: Sequence[Any],
        prompts: Sequence[str],
        *,
        template: Template | None = None,
        seed: int | None = None,
        **generate: Any,
    ) -> list[Answer]:
        """Answer one prompt about each picture, one after the other."""
        rows = [
            self.prepare([read_image(one)], [text], template=template)
            for one, text in zip(images, prompts, strict=True)
        ]
        return [answer for row in rows for answer in self.respond(row, seed=seed, **generate)]

    def respond(self, inputs: Mapping[str, Any], *, seed: int | None = None, **generate: Any) -> list[Answer]:
        """Answer prepared inputs: greedy unless told otherwise."""
        from reweigh.engines.mlx.generation import answer_of

        options = {"do_sample": False, **generate}
        with self.request():
            return [answer_of(self.model, self.processor, inputs, seed=seed, **options)]


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
    kind: type[Attached] = Attached
    if is_mlx(model):
        from reweigh.engines.mlx.model import find_anatomy as find_mlx

        kind = MlxSession
        anatomy: Anatomy = find_mlx(model, processor)
    else:
        processor = processor_of(model) if processor is None else processor
        anatomy = find_anatomy(model)
    decoder = ReWEIGH(
        anatomy,
        processor,
        table=table,
        beta=beta,
        layer=layer,
        force=force,
    )
    decoder.name = "reweigh"
    return kind(model, processor, decoder)
