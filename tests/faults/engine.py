"""The mutation engine: damage one file of a target, read it, and count what came of it.

``PYTHONPATH=tests python -m faults 10000`` prints the table of docs/reliability.md.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from faults.mutations import mutate
from faults.targets import TARGETS, Target, quietly
from reweigh.errors import ReweighError

OUTCOMES = ("clean error", "accepted, equal", "accepted, different", "foreign exception")
BAD = OUTCOMES[2:]


@dataclass
class Tally:
    """Outcomes of one target, and the seeds of those that must not be."""

    target: str
    counts: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)


def run(target: Target, cases: int, *, seed: int = 0) -> Tally:
    """Damage a target that many times."""
    tally = Tally(target.name)
    with tempfile.TemporaryDirectory() as place:
        pristine, folder = Path(place, "pristine"), Path(place, "damaged")
        pristine.mkdir()
        target.make(pristine)
        expected = quietly(target.read, pristine)
        names = [path.relative_to(pristine) for path in target.files(pristine)]
        for number in range(cases):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(pristine, folder)
            dice = Random(f"{target.name}/{seed}/{number}")
            path = folder / dice.choice(names)
            path.write_bytes(mutate(path.read_bytes(), dice))
            outcome, why = judge(target, folder, expected)
            tally.counts[outcome] += 1
            if outcome in BAD:
                tally.bad.append(f"{target.name} {seed}/{number} {path.name}: {outcome} {why}")
    return tally


def judge(target: Target, folder: Path, expected: object) -> tuple[str, str]:
    """What a reader makes of a damaged folder."""
    try:
        found = quietly(target.read, folder)
    except ReweighError as error:
        return OUTCOMES[0], str(error)
    except BaseException as error:  # a panic of compiled code is none of Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return OUTCOMES[3], f"{type(error).__name__}: {error}"
    if found is None:  # a cache that does not trust its file makes it again
        return OUTCOMES[0], "made again"
    return (OUTCOMES[1], "") if found == expected else (OUTCOMES[2], repr(found)[:300])


def table(tallies: Iterable[Tally]) -> str:
    """The counts as Markdown."""
    rows = [*tallies]
    total = Tally("all", sum((tally.counts for tally in rows), Counter()))
    lines = [
        "| what is damaged | cases | " + " | ".join(OUTCOMES) + " |",
        "|---|" + "---:|" * (len(OUTCOMES) + 1),
    ]
    for tally in (*rows, total):
        cells = [f"{tally.counts[outcome]:,}" for outcome in OUTCOMES]
        lines.append(f"| {tally.target} | {sum(tally.counts.values()):,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(cases: int, seed: int = 0) -> int:
    """Print the table of so many cases, spread over all targets; 1 if one came to what must not be."""
    tallies = [run(target, -(-cases // len(TARGETS)), seed=seed) for target in TARGETS]
    bad = [line for tally in tallies for line in tally.bad]
    sys.stdout.write("\n".join([table(tallies), *bad]) + "\n")
    return 1 if bad else 0
