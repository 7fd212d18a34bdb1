"""Material made by hand: images with planted steps, mentions and evidence, and tables of two readouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from reweigh.lab.arms.ablate.arms import Variant
from reweigh.lab.paper.corpus.image import Mention, StudyImage
from reweigh.lab.paper.corpus.reading import PositionSummary
from reweigh.tables.table import ReferenceTable

PIECES = ["<s>", "Ġthe", "Ġdog", "Ġcat", ".", "ing", "Ġa", "Ġbed"]
SPECIAL, THE, DOG, CAT, DOT, ING, A, BED = range(len(PIECES))
VOCAB = len(PIECES)
Step = tuple[int, Sequence[tuple[int, float]]]
"""The emitted token, and candidates with their logits, best first."""


def image(
    number: int,
    steps: Sequence[Step],
    mentions: Sequence[tuple[int, bool]],
    evidence: dict[str, Sequence[float]],
    probability: Sequence[float] | None = None,
) -> StudyImage:
    """One image; ``mentions`` are onsets and whether they are hallucinated."""
    sizes = [len(candidates) for _, candidates in steps]
    pairs = [pair for _, candidates in steps for pair in candidates]
    none = PositionSummary(np.ones(1), np.zeros((1, 1)), np.zeros((1, 1), dtype=np.int32))
    return StudyImage(
        number=number,
        id=number,
        key=f"{number:04d}.png#0",
        text="",
        tokens=np.array([token for token, _ in steps]),
        probability=np.array(probability or [0.5] * len(steps)),
        first=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        candidates=np.array([token for token, _ in pairs], dtype=np.int64),
        logits=np.array([logit for _, logit in pairs], dtype=np.float32),
        evidence={name: np.array(values, dtype=np.float32) for name, values in evidence.items()},
        original=none,
        equalized=none,
        mentions=tuple(
            Mention(word="", object="dog", start=0, end=1, hallucinated=hallucinated, onset=onset)
            for onset, hallucinated in mentions
        ),
    )


def table(references: dict[int, float], scale: float = 1.0) -> ReferenceTable:
    tokens = np.array(sorted(references), dtype=np.int64)
    values = np.array([references[int(token)] for token in tokens])
    return ReferenceTable(0, scale, tokens, values, np.full(len(tokens), 9), {"rule": "stable"})


def read_as(made: ReferenceTable, readout: str) -> ReferenceTable:
    return replace(made, about={**made.about, "readout": readout})


class MadeCorpus(list[StudyImage]):
    """Images as a corpus gives them."""

    vocab_size = VOCAB


def material(
    make: Callable[[int], StudyImage],
    *,
    images: int = 40,
    rank: ReferenceTable | None = None,
    probability: ReferenceTable | None = None,
    beta: float = 1.0,
    resamples: int = 100,
) -> Any:
    """Material of made images without a model; the probability arm reads ``logprob``."""
    arms = {
        "rank": Variant("rank", rank or table({})),
        "probability": Variant("probability", read_as(probability or table({}), "logprob")),
    }
    return SimpleNamespace(
        evaluation=MadeCorpus(make(number) for number in range(images)),
        calibration=MadeCorpus(),
        table=arms["rank"].table,
        arm=arms.__getitem__,
        pieces=lambda: (PIECES, {SPECIAL}),
        beta=beta,
        draws={"resamples": resamples},
        runs=SimpleNamespace(seed=3),
        is_embedded=False,
    )
