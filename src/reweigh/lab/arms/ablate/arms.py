"""The arms of an ablation. Each changes one thing of the full method: the table, the evidence, or the strength.

An arm may replace DMRR by another readout; candidates, references, registration and the edit stay. ``prob`` keeps the
pooled median as its scale; the others take the positive scale at which their mean deployed edit equals DMRR's. The arm
``mean-probability-budget`` keeps the scale of ``prob`` and refits beta instead. Knows neither decoding nor prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.engines.reader import CLIP, Clip
from reweigh.errors import CalibrationError, InputError, require_known
from reweigh.method.matching import mean_edit
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.method.references import References, Rule, rule_named
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable

FULL, SHUFFLED, MATCHED, RELATIVE, RANK = "full", "shuffled", "matched", "relative", "rank"
BUDGET = "mean-probability-budget"
SPENT = ", its scale matched to the mean edit"
READOUT_ARMS = {
    "probability": ("logprob", SPENT),
    "mean-probability": ("prob", ", its scale its own median"),
    BUDGET: ("prob", ", its scale its own median, beta refit to the mean edit"),
    "zscore": ("zscore", SPENT),
    "standardized-probability": ("zprob", SPENT),
}
"""Arms of other readouts: the readout, and how its scale or budget is found."""
ALIKE = 0.03
"""Two registered sets that differ by less than this share are called nearly the same."""
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
        name: f"evidence read as {READOUTS[readout].title}{scale}"
        for name, (readout, scale) in READOUT_ARMS.items()
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
        table: References it edits with; the evidence is that of its readout.
        kind: Which arm it is, if not its name; permutations share one.
        donors: For each record, the record whose evidence it is given; its own by default.
        blind: Whether it is given no evidence at all: zero for every token.
        clip: Bounds of its strengths.
        factor: Its beta in units of the method's.
        seed: Seed of what was drawn for it.
        unit: The table whose references its evidence is divided by, token by token.
    """

    name: str
    table: ReferenceTable
    kind: str = ""
    donors: Sequence[int] | None = None
    blind: bool = False
    clip: Clip = CLIP
    factor: float = 1.0
    seed: int | None = None
    unit: ReferenceTable | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.kind or self.name)

    def record(self) -> dict[str, Any]:
        """Return what a record says of the arm, besides the table's hash."""
        return {"arm": self.kind} | ({} if self.seed is None else {"arm_seed": self.seed})


FindReadout = Callable[[str], Variant]
"""Registers a readout arm by its name from the calibration images of the table in use."""
Observe = Callable[..., Observations]
"""Calibration observations of a readout by its name."""


def derangement(count: int, seed: int) -> NDArray[np.int64]:
    """Return a random permutation without fixed points; the same for the same seed."""
    if count < 2:
        raise InputError(f"{count} records cannot exchange their evidence", hint="use at least 2 records")
    generator = np.random.default_rng(seed)
    while True:  # a bit more than a third of all permutations qualify
        drawn = generator.permutation(count)
        if (drawn != np.arange(count)).all():
            return drawn.astype(np.int64)


def global_reference(table: ReferenceTable) -> ReferenceTable:
    """Use b0 for every registered token."""
    return _changed(table, "global", references=np.full(len(table), table.b0))


def shuffled(table: ReferenceTable, seed: int) -> ReferenceTable:
    """Give the same references to other registered tokens."""
    drawn = np.random.default_rng(seed).permutation(len(table))
    return _changed(table, f"shuffled by seed {seed}", references=table.references[drawn])


def without_abstention(table: ReferenceTable, vocab_size: int) -> ReferenceTable:
    """Use b0 for every token that is not registered."""
    references = np.full(vocab_size, table.b0)
    counts = np.ones(vocab_size, dtype=np.int64)  # a table with a count of 0 is refused
    references[table.tokens], counts[table.tokens] = table.references, table.counts
    every = np.arange(vocab_size, dtype=np.int64)
    changed = _changed(table, "no-abstention", tokens=every, references=references, counts=counts)
    return replace(changed, about={**changed.about, "rule": "count-1"})  # what its counts allow


def in_own_units(table: ReferenceTable) -> ReferenceTable:
    """Use 1 for every reference and for b0: on evidence in units of b(v), s = clip((b(v) - DMRR) / b(v), 0, 1)."""
    return _changed(table, RELATIVE, references=np.ones(len(table)), b0=1.0)


def by_count(table: ReferenceTable, observations: Observations, count: int) -> ReferenceTable:
    """Register again from the stored observations, by their number alone."""
    rule = f"count-{count}"
    found = observations.register(table.layer, rule=rule_named(rule))
    return ReferenceTable.build(table.layer, found, {**table.about, "rule": rule})


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
    make: dict[str, Callable[[], Variant]] = {
        FULL: lambda: Variant(FULL, table),
        "global": lambda: Variant("global", global_reference(table)),
        "mismatched": lambda: Variant(
            "mismatched", table, donors=derangement(records, seed).tolist(), seed=seed
        ),
        "cyclic": lambda: Variant("cyclic", table, donors=[*range(1, records), 0]),
        "blind": lambda: Variant("blind", table, blind=True),
        "no-abstention": lambda: Variant("no-abstention", without_abstention(table, vocab_size)),
        "bidirectional": lambda: Variant("bidirectional", table, clip=BIDIRECTIONAL),
        "unbounded": lambda: Variant("unbounded", table, clip=UNBOUNDED),
        RELATIVE: lambda: Variant(RELATIVE, in_own_units(table), unit=table),
    }
    arms: list[Variant] = []
    left_out: dict[str, str] = {}
    for kind in kinds:
        if kind in ("mismatched", "cyclic") and records < 2:
            left_out[kind] = "with a single record there is no other evidence to use"
        elif kind.startswith("count-"):
            if observations is None:
                left_out[kind] = "no observations are kept beside the table"
            else:
                count = int(kind.removeprefix("count-"))
                arms.append(Variant(kind, by_count(table, observations, count)))
        elif (arm := readout_of(kind)) is not None:
            if readouts is None:
                left_out[kind] = "the calibration images of the table are not given"
            else:
                arms.append(readout_variant(kind, table, readouts(arm)))
        elif kind == SHUFFLED:
            arms += [
                Variant(f"{kind}-{drawn}", shuffled(table, drawn), kind, seed=drawn)
                for drawn in range(shuffles)
            ]
        else:
            arms.append(make[kind]())
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


def readout_variant(kind: str, table: ReferenceTable, found: Variant) -> Variant:
    """Make a readout arm, or one side of its comparison on the tokens that both register."""
    if kind == found.name:
        return found
    ranked, other = on_common_tokens(table, found.table)
    if kind.startswith(f"{RANK}-"):
        return Variant(kind, ranked)
    return Variant(kind, other, factor=found.factor)


def readout_arm(
    name: str, table: ReferenceTable, observe: Observe, *, rule: Rule, evidence: str | None = None
) -> Variant:
    """Register an arm from the calibration images of the table in use.

    Args:
        name: ``rank``, or one of ``READOUT_ARMS``.
        table: The DMRR table in use.
        observe: Gives the observations of a readout, or of another vector in its place.
        rule: Which tokens to register.
        evidence: A kept vector that stands in for the readout's own, such as ``prob`` of equalized logits.
    """
    if name == RANK:
        return Variant(name, table)
    require_known("readout arm", [name], READOUT_ARMS)
    readout, _ = READOUT_ARMS[name]
    observations = observe(readout, evidence=evidence)
    found = observations.register(table.layer, rule=rule)
    factor = 1.0
    if name == BUDGET:
        ranked = observe(DMRR)
        target = mean_edit(ranked.token, ranked.values[0], ranked.count, references_of(table))
        own = mean_edit(observations.token, observations.values[0], observations.count, found)
        if not own > 0:
            raise CalibrationError(f"the mean edit of {name} is {own}, so no beta can match DMRR's")
        factor = target / own
    about = {**table.about, "readout": readout}
    return Variant(name, ReferenceTable.build(table.layer, found, about), factor=factor)


def references_of(table: ReferenceTable) -> References:
    """Return the references of a table."""
    return References(table.b0, table.tokens, table.references, table.counts)


def on_common_tokens(first: ReferenceTable, second: ReferenceTable) -> tuple[ReferenceTable, ReferenceTable]:
    """Restrict both tables to the tokens that are registered in both."""
    common, mine, theirs = np.intersect1d(first.tokens, second.tokens, return_indices=True)

    def kept(table: ReferenceTable, rows: np.ndarray, other: ReferenceTable) -> ReferenceTable:
        about = {**table.about, "common_with": other.fingerprint}
        columns = {"references": table.references[rows], "counts": table.counts[rows]}
        return replace(table, tokens=common, about=about, **columns)

    return kept(first, mine, second), kept(second, theirs, first)


def describe_sets(first: ReferenceTable, second: ReferenceTable, names: tuple[str, str]) -> str:
    """Say how many tokens each of two arms registers, how many both, and whether the sets are nearly the same."""
    common = len(np.intersect1d(first.tokens, second.tokens))
    apart = set_difference(first, second)
    counts = f"{names[0]} registers {len(first):,} tokens, {names[1]} {len(second):,}, both {common:,}"
    alike = ", less than 3%: native and matched are nearly the same comparison" if apart < ALIKE else ""
    return f"{counts}; the sets differ by {100 * apart:.1f}%{alike}."


def set_difference(first: ReferenceTable, second: ReferenceTable) -> float:
    """Return the share of the tokens registered in either table that the other lacks."""
    either = np.union1d(first.tokens, second.tokens)
    return 1.0 - len(np.intersect1d(first.tokens, second.tokens)) / len(either) if len(either) else 0.0


def _changed(table: ReferenceTable, arm: str, **columns: Any) -> ReferenceTable:
    return replace(table, **columns, about={**table.about, "arm": arm})
