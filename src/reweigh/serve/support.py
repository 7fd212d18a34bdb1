"""Evidence, reference and strength of each token of an answer, whichever decoder wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reweigh.decoding import ReweighSession
from reweigh.engines.transformers.measure import measure
from reweigh.engines.transformers.recall import Recall
from reweigh.method.evidence import Evidence
from reweigh.method.strength import strength
from reweigh.serve.row import Row

UNKNOWN: dict[str, float | None] = {"dmrr": None, "b": None, "s": None}


class Support:
    """One row's evidence beside the references of a table."""

    def __init__(self, evidence: Evidence, table_session: ReweighSession) -> None:
        self._table = table_session.table
        self._values = evidence.of(table_session.layer, table_session.decoder.deployed.tokens).cpu().numpy()

    def of(self, token: int) -> dict[str, float | None]:
        """Evidence, reference and strength of a token; nothing where it is not registered."""
        reference = self._table.reference(token)
        if reference is None:
            return UNKNOWN
        value = float(self._values[int(np.searchsorted(self._table.tokens, token))])
        share = strength(reference, np.array(value), self._table.scale)
        return {"dmrr": value, "b": reference, "s": float(share)}


def supports(
    table_session: ReweighSession | None, evidence: Sequence[Evidence | None], count: int
) -> list[Support | None]:
    """The support of each of ``count`` rows; none where a row has no image."""
    if table_session is None or not evidence:
        return [None] * count
    return [None if one is None else Support(one, table_session) for one in evidence]


def measured_supports(rows: Sequence[Row], recall: Recall) -> list[Support | None]:
    """The support of rows that another decoder writes: kept evidence, or one pass to measure it."""
    return [_measured_support(row, recall) for row in rows]


def _measured_support(row: Row, recall: Recall) -> Support | None:
    table_session, key = row.table_session, row.prepared.key
    if table_session is None or key is None or not (row.evidence or row.trace):
        return None
    deployed = table_session.decoder.deployed
    found = recall.find([key], deployed.reader)[0]
    if found is None:
        found = measure(
            table_session.model,
            row.prepared.inputs,
            layers=[table_session.layer],
            tokens=deployed.tokens.tolist(),
            dtype=deployed.lens.mode,
            chunk=deployed.lens.chunk,
        )[0]
        recall.keep([key], [None], [found], deployed.reader)
    return None if found is None else Support(found, table_session)


def token_facts(
    token: int, text: str, step: int, span: tuple[int, int], support: Support | None
) -> dict[str, Any]:
    """What the server reports about one token: its place in the answer, and its support."""
    known = UNKNOWN if support is None else support.of(token)
    return {"step": step, "token": token, "text": text, "start": span[0], "end": span[1], **known}
