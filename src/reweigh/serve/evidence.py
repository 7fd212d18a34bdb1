"""Evidence of a conversation's pictures, recalled or measured, beside the references of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reweigh.attached import Attached
from reweigh.engines.reader import Reader
from reweigh.errors import InputError
from reweigh.measuring import measure
from reweigh.method.evidence import Evidence
from reweigh.serve.prepare import Prepared
from reweigh.serve.recall import Recall


def recall_or_measure(
    model: Any, recall: Recall, prepared: Prepared, readers: Sequence[Reader]
) -> tuple[list[Evidence], bool]:
    """Return what readers of the same tokens read at several layers, and whether any of it had to be measured.

    Args:
        prepared: Has an image.
    """
    key = prepared.key or ""
    found = [recall.find([key], reader)[0] for reader in readers]
    missing = [reader for reader, one in zip(readers, found, strict=True) if one is None]
    if not missing:
        return [one for one in found if one is not None], False
    lens, tokens = missing[0].lens, missing[0].tokens
    fresh = measure(
        model,
        prepared.inputs,
        layers=[reader.layers[0] for reader in missing],
        tokens=None if tokens is None else tokens.tolist(),
        dtype=lens.mode,
        chunk=lens.chunk,
    )[0]
    if fresh is None:
        raise InputError("the prompt holds no image")
    for reader in missing:
        recall.keep([key], [None], [fresh], reader)
    return [fresh if one is None else one for one in found], True


class Support:
    """One row's evidence beside the references of a table."""

    def __init__(self, evidence: Evidence, table_session: Attached) -> None:
        self._table = table_session.table
        self._values = evidence.of(table_session.layer, table_session.decoder.reader.tokens).tolist()

    def of(self, token: int) -> dict[str, float | None]:
        """Return evidence, reference and strength of a token."""
        return self._table.support(token, self._values)


def token_facts(
    token: int, text: str, step: int, span: tuple[int, int], support: Support | None
) -> dict[str, Any]:
    """Return what the server reports about one token: its place in the answer, and its support."""
    known = {"dmrr": None, "b": None, "s": None} if support is None else support.of(token)
    return {"step": step, "token": token, "text": text, "start": span[0], "end": span[1], **known}
