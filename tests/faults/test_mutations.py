"""Damaged files: a clean error, or the same as before. Never another result, never a foreign exception."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from faults.engine import BAD, OUTCOMES, Tally, main, run, table
from faults.mutations import MUTATIONS, mutate
from faults.targets import TARGETS, Target
from reweigh.files.artifacts import read_json, write_json


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damage_is_refused_or_harmless(target: Target) -> None:
    tally = run(target, 40)
    assert tally.bad == []
    assert sum(tally.counts.values()) == 40


@pytest.mark.full
def test_ten_thousand_damages(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(10_000)
    shown = capsys.readouterr().out
    with capsys.disabled():
        print(f"\n{shown}")  # noqa: T201
    assert code == 0, shown


def test_the_engine_sees_what_must_not_be() -> None:
    """A format without a seal, and a reader without care, are found out."""

    def make(folder: Path) -> None:
        write_json(folder / "page.json", {"b0": 0.0032, "name": "x" * 40, "list": [1, 2, 3]})

    trusting = run(Target("trusting", make, lambda folder: read_json(folder / "page.json")), 60)
    careless = run(
        Target("careless", make, lambda folder: sorted(read_json(folder / "page.json")["name"])), 60
    )
    assert trusting.counts["accepted, different"] > 10
    assert careless.counts["foreign exception"] > 2
    assert all(line.split()[0] in ("trusting", "careless") for line in trusting.bad + careless.bad)


def test_every_mutation_changes_something_and_a_seed_fixes_it() -> None:
    data = b'{"a": [1, 2.5, "x"], "b": {"c": null}}\n{"d": 7}\n'
    assert {mutate(data, Random(seed)) for seed in range(300)}.isdisjoint({data})
    assert [mutate(data, Random(5)) for _ in range(2)] == [mutate(data, Random(5))] * 2
    for mutation in MUTATIONS:
        assert any(mutation(data, Random(seed)) != data for seed in range(20)), mutation.__name__


def test_the_table_counts_all() -> None:
    tally = Tally("one")
    tally.counts.update({OUTCOMES[0]: 3, BAD[0]: 1})
    assert table([tally]).splitlines()[2:] == ["| one | 4 | 3 | 0 | 1 | 0 |", "| all | 4 | 3 | 0 | 1 | 0 |"]
