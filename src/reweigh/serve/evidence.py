"""Evidence of a conversation's pictures, recalled or measured, beside the references of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reweigh.decoding import ReweighSession
from reweigh.engines.transformers.measure import measure
from reweigh.engines.transformers.recall import Recall
from reweigh.errors import InputError
from reweigh.method.evidence import Evidence
from reweigh.method.references import strength
from reweigh.runtime.reader import Reader
from reweigh.serve.prepare import Prepared

UNKNOWN: dict[str, float | None] = {"dmrr": None, "b": None, "s": None}


def recall_or_measure(
    model: Any, recall: Recall, prepared: Prepared, readers: Sequence[Reader]
) -> tuple[list[Evidence], bool]:
    """What readers of the same tokens at several layers read, and whether any of it had to be measured.

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

    def __init__(self, evidence: Evidence, table_session: ReweighSession) -> None:
        self._table = table_session.table
        self._values = evidence.of(table_session.layer, table_session.decoder.deployed.tokens).cpu().numpy()

    def of(self, token: int) -> dict[str, float | None]:
        """Evidence, reference and strength of a token; nothing if it is not registered."""
        reference = self._table.reference(token)
        if reference is None:
            return UNKNOWN
        value = float(self._values[int(np.searchsorted(self._table.tokens, token))])
        share = strength(reference, np.array(value), self._table.scale)
        return {"dmrr": value, "b": reference, "s": float(share)}


def token_facts(
    token: int, text: str, step: int, span: tuple[int, int], support: Support | None
) -> dict[str, Any]:
    """What the server reports about one token: its place in the answer, and its support."""
    known = UNKNOWN if support is None else support.of(token)
    return {"step": step, "token": token, "text": text, "start": span[0], "end": span[1], **known}
