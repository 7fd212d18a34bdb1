"""Which table a model uses: found, verified against the model, and paired with the lens that it was made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reweigh.errors import MismatchError
from reweigh.families.anatomy import Anatomy
from reweigh.families.points import published_point
from reweigh.method.lens import CHUNK, Lens
from reweigh.tables.table import ReferenceTable


def pair(
    anatomy: Anatomy,
    processor: Any,
    table: ReferenceTable | str | Path,
    *,
    layer: int | None,
    force: bool = False,
) -> tuple[ReferenceTable, Lens]:
    """Return the table, verified against the model, and the lens it was made with.

    Where a folder holds several layers and none is named, the tuned one is taken, then the paper's for this model.
    ``force`` accepts another model, tokenizer or dtype; the layer must exist and the vocabulary fit all the same.
    """
    block = None if layer is None else anatomy.check_layer(layer)
    published = published_point(anatomy)
    identity = None if force else anatomy.identify(processor)
    if not isinstance(table, ReferenceTable):
        default = None if published is None else published.layer
        table = ReferenceTable.from_pretrained(table, layer=block, default=default)
    made = table.about
    dtype = "float32" if made.get("lens") == "float32" else "native"
    lens = anatomy.lens(dtype=dtype, chunk=made.get("chunk", CHUNK))
    table.check_layer(block)
    table.verify()
    if identity is not None:
        table.check_pairing(identity, dtype=lens.dtype, rows=lens.rows)
    anatomy.check_layer(table.layer)
    if table.tokens.size and int(table.tokens[-1]) >= anatomy.rows:
        raise MismatchError(
            f"the table has token {int(table.tokens[-1])}, but the model ranks {anatomy.rows} tokens"
        )
    return table, lens
