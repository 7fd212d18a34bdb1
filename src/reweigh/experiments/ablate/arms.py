"""The arms of an ablation. Each changes one thing of the full method: the table, the evidence, or the strength.

Knows the table and the number of records, but neither decoding nor prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.decoding.reweigh import CLIP, Clip
from reweigh.errors import InputError, require_known
from reweigh.experiments.readouts import ARMS as READOUT_ARMS
from reweigh.experiments.readouts import BUDGET, RANK, ReadoutArm, describe_sets, on_common_tokens
from reweigh.method.readouts import READOUTS
from reweigh.method.references import rule_named
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable

FULL, SHUFFLED, MATCHED, RELATIVE = "full", "shuffled", "matched", "relative"
BUDGETS = {
    "probability": ", its scale matched to the mean edit",
    "mean-probability": ", its scale its own median",
    BUDGET: ", its scale its own median, beta refit to the mean edit",
    "zscore": ", its scale matched to the mean edit",
    "standardized-probability": ", its scale matched to the mean edit",
}
WORDS = {
    FULL: "the method as it is",
    "global": "b0 for every reference",
    SHUFFLED: "references permuted over the registered tokens",
    "mismatched": "evidence of another record, by a fixed derangement",
    "cyclic": "evidence of the next record",
    "blind": "no evidence at all: DMRR = 0",
    "no-abstention": "b0 for candidates that are not registered",
    "bidirectional": "no lower clip: evidence may raise a logit",
    "unbounded": "no upper clip: a penalty may exceed beta",
    RELATIVE: "each deficit divided by the token's own reference instead of b0",
    "count-5": "registered from 5 observations on",
    "count-10": "registered from 10 observations on",
    **{
        name: f"evidence read as {READOUTS[readout].title}{BUDGETS[name]}"
        for name, readout in READOUT_ARMS.items()
    },
    **{
        f"{prefix}{name}-{MATCHED}": f"{who}, on the tokens that {name} and the full method both register"
        for name in READOUT_ARMS
        for prefix, who in (("", name), (f"{RANK}-", "the full method"))
    },
}
"""Every arm, in the order of the table, and what it changes."""


BIDIRECTIONAL: Clip = (None, 1.0)
"""Without the lower clip: min((b - DMRR) / b0, 1)."""
UNBOUNDED: Clip = (0.0, None)
"""Without the upper clip: max((b - DMRR) / b0, 0)."""


@dataclass(frozen=True)
class Variant:
    """One arm.

    Attributes:
        name: What its folder is called.
        kind: Which arm it is; permutations share one.
        table: References it edits with.
        donors: For each record, the record whose evidence it is given; ``None`` for no evidence at all.
        clip: Bounds of its strengths.
        factor: Its beta in units of the method's.
        seed: Seed of what was drawn for it.
        unit: The table whose references its evidence is divided by, token by token.
    """

    name: str
    kind: str
    table: ReferenceTable
    donors: Sequence[int] | None
    clip: Clip = CLIP
    seed: int | None = None
    factor: float = 1.0
    unit: ReferenceTable | None = None

    def record(self) -> dict[str, Any]:
        """Return what a record says of the arm, besides the table's hash."""
        return {"arm": self.kind} | ({} if self.seed is None else {"arm_seed": self.seed})


FindReadout = Callable[[str], ReadoutArm]
"""Registers a readout arm by its name from the calibration images of the table in use."""


def derangement(count: int, seed: int) -> NDArray[np.int64]:
    """Return a random permutation without fixed points; the same for the same seed."""
    if count < 2:
        raise InputError(f"{count} records cannot exchange their evidence", hint="use at least 2 records")
    generator = np.random.default_rng(seed)
    while True:  # a bit more than a third of all permutations will do
        drawn = generator.permutation(count)
        if (drawn != np.arange(count)).all():
            return drawn.astype(np.int64)


def global_reference(table: ReferenceTable) -> ReferenceTable:
    """Use b0 for every registered token."""
    return _changed(table, "global", references=np.full(len(table), table.scale))


def shuffled(table: ReferenceTable, seed: int) -> ReferenceTable:
    """Give the same references to other registered tokens."""
    drawn = np.random.default_rng(seed).permutation(len(table))
    return _changed(table, f"shuffled by seed {seed}", references=table.references[drawn])


def without_abstention(table: ReferenceTable, vocab_size: int) -> ReferenceTable:
    """Use b0 for every token that is not registered."""
    references = np.full(vocab_size, table.scale)
    counts = np.ones(vocab_size, dtype=np.int64)  # a table with a count of 0 is refused
    references[table.tokens], counts[table.tokens] = table.references, table.counts
    every = np.arange(vocab_size, dtype=np.int64)
    changed = _changed(table, "no-abstention", tokens=every, references=references, counts=counts)
    return replace(changed, made_with={**changed.made_with, "rule": "count-1"})  # what its counts allow


def in_own_units(table: ReferenceTable) -> ReferenceTable:
    """Use 1 for every reference and for b0: on evidence in units of b(v), s = clip((b(v) - DMRR) / b(v), 0, 1)."""
    return _changed(table, RELATIVE, references=np.ones(len(table)), scale=1.0)


def by_count(table: ReferenceTable, observations: Observations, count: int) -> ReferenceTable:
    """Register again from the stored observations, by their number alone."""
    rule = f"count-{count}"
    found = observations.register(table.layer, rule=rule_named(rule))
    return ReferenceTable.build(table.layer, found, {**table.made_with, "rule": rule})


def parse_arms(text: str) -> list[str]:
    """Read arms from a comma-separated list, in the order of the table; the full method is always among them.

    A matched readout brings the full method on the same tokens along.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    require_known("arm", names, WORDS)
    names += [
        f"{RANK}-{name}" for name in names if name.endswith(f"-{MATCHED}") and f"{RANK}-{name}" in WORDS
    ]
    return [name for name in WORDS if name == FULL or name in names]


def make_variants(
    kinds: Sequence[str],
    table: ReferenceTable,
    *,
    records: int,
    vocab_size: int,
    observations: Observations | None,
    shuffles: int,
    seed: int,
    readouts: FindReadout | None = None,
) -> tuple[list[Variant], dict[str, str]]:
    """Make the arms of some kinds, and say why others are left out; arms of readouts need ``readouts``."""
    own = range(records)
    arms: list[Variant] = []
    left_out: dict[str, str] = {}

    def add(kind: str, made: ReferenceTable = table, donors: Sequence[int] | None = own, **more: Any) -> None:
        arms.append(Variant(more.pop("name", kind), kind, made, donors, **more))

    make: dict[str, Callable[[str], None]] = {
        "global": lambda kind: add(kind, global_reference(table)),
        "mismatched": lambda kind: add(kind, donors=derangement(records, seed).tolist(), seed=seed),
        "cyclic": lambda kind: add(kind, donors=[*range(1, records), 0]),
        "blind": lambda kind: add(kind, donors=None),
        "no-abstention": lambda kind: add(kind, without_abstention(table, vocab_size)),
        "bidirectional": lambda kind: add(kind, clip=BIDIRECTIONAL),
        "unbounded": lambda kind: add(kind, clip=UNBOUNDED),
        RELATIVE: lambda kind: add(kind, in_own_units(table), unit=table),
    }
    for kind in kinds:
        if kind in ("mismatched", "cyclic") and records < 2:
            left_out[kind] = "with a single record there is no other evidence to use"
        elif kind.startswith("count-"):
            if observations is None:
                left_out[kind] = "no observations are kept beside the table"
            else:
                add(kind, by_count(table, observations, int(kind.removeprefix("count-"))))
        elif (arm := readout_of(kind)) is not None:
            if readouts is None:
                left_out[kind] = "the calibration images of the table are not given"
            else:
                arms.append(readout_variant(kind, table, readouts(arm), own))
        elif kind == SHUFFLED:
            for drawn in range(shuffles):
                add(kind, shuffled(table, drawn), name=f"{kind}-{drawn}", seed=drawn)
        else:
            make.get(kind, add)(kind)
    return arms, left_out


def registered_sets(kinds: Sequence[str], table: ReferenceTable, readouts: FindReadout | None) -> list[str]:
    """Say which tokens readout arms register, compared with those of the full method."""
    names = dict.fromkeys(name for kind in kinds if (name := readout_of(kind)) is not None)
    return (
        []
        if readouts is None
        else [describe_sets(readouts(name).table, table, (name, FULL)) for name in names]
    )


def readout_of(kind: str) -> str | None:
    """Return the readout arm that a kind of arm is about, if it is about one."""
    name = kind.removesuffix(f"-{MATCHED}")
    name = name.removeprefix(f"{RANK}-") if name != kind else name
    return name if name in READOUT_ARMS else None


def readout_variant(kind: str, table: ReferenceTable, found: ReadoutArm, own: Sequence[int]) -> Variant:
    """Make a readout arm, or one side of its comparison on the tokens that both register."""
    if kind == found.name:
        return Variant(kind, kind, found.table, own, factor=found.factor)
    ranked, other = on_common_tokens(table, found.table)
    if kind.startswith(f"{RANK}-"):
        return Variant(kind, kind, ranked, own)
    return Variant(kind, kind, other, own, factor=found.factor)


def _changed(table: ReferenceTable, arm: str, **columns: Any) -> ReferenceTable:
    return replace(table, **columns, made_with={**table.made_with, "arm": arm})
