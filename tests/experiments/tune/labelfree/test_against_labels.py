"""Choices without labels against choices with them: the arrays against plain counting, worse verifiers, what is noticed."""

from __future__ import annotations

import io
import json
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from reweigh.benchmarks.base import Item, Record
from reweigh.benchmarks.bootstrap import point
from reweigh.benchmarks.chair.metrics import caption_details, count_caption, figures
from reweigh.errors import InputError
from reweigh.experiments.tune.labelfree.against import hold_against_labels
from reweigh.experiments.tune.labelfree.against_report import (
    COLUMNS,
    build_page,
    build_table,
    control_table,
    sentences,
    terminal,
    to_json,
)
from reweigh.experiments.tune.labelfree.arrays import Arrays, quality_of
from reweigh.experiments.tune.labelfree.controls import CONTROLS
from reweigh.experiments.tune.labelfree.figures import known_absents, pools, pseudo_items
from reweigh.experiments.tune.labelfree.verified import Verified
from reweigh.experiments.tune.labelfree.worse import WORSE, Worse, itself, shares_the_base
from reweigh.experiments.tune.search import BASE, FIGURES, Quality, choose, gain, judge

NAMES = "abcdefgh"
KEYS = (BASE, (1, 1.0), (1, 2.0), (2, 1.0))


def made(seed: int, images: int, keys=KEYS, invents=(0.7, 0.5, 0.2, 0.6)) -> tuple[Verified, dict]:
    """Scenes of three objects; each point names two of them, and invents at its own rate; answers are 95% right."""
    draw = random.Random(seed)
    truths = [set(draw.sample(NAMES, 3)) for _ in range(images)]
    points, items = {}, {}
    for key, share in zip(keys, invents, strict=True):
        texts = []
        for truth in truths:
            said = draw.choices(sorted(truth), k=3)
            said += [draw.choice(sorted(set(NAMES) - truth))] if draw.random() < share else []
            texts.append(said)
        points[key] = [Counter(said) for said in texts]
        items[key] = [
            Item(
                id=i,
                image=str(i),
                counts=count_caption(said, truth, words=0),
                details=caption_details([], truth),
            )
            for i, (said, truth) in enumerate(zip(texts, truths, strict=True))
        ]
    gaps = [
        {name: (3.0 if (name in truth) ^ (draw.random() < 0.05) else -3.0) for name in NAMES}
        for truth in truths
    ]
    return Verified(points, known_absents(pools(points)), gaps), items


@given(st.integers(0, 10**6), st.integers(2, 12))
@settings(max_examples=15)
def test_arrays_count_as_items_do(seed, images):
    verified, items = made(seed, images)
    search = Arrays.of(verified, items)
    times = np.random.default_rng(seed).integers(0, 3, images).astype(float)
    times[0] += 1
    drawn = [i for i, often in enumerate(times) for _ in range(int(often))]
    affirmed = [{name: gap > 0 for name, gap in one.items()} for one in verified.gaps]
    records = [Record(id=i, image=str(i), prompt="", max_new_tokens=1) for i in range(images)]
    pool = pools(verified.points)
    for kind, counts in (
        ("labels", search.labelled),
        ("verdicts", search.counted(itself(search, np.zeros(1)))),
    ):
        found = quality_of(counts, times)
        for place, key in enumerate(search.keys):
            own = items[key]
            if kind == "verdicts":
                own = pseudo_items(records, verified.points[key], pool, affirmed)
            again = [Item(id=n, image=str(n), counts=own[image].counts) for n, image in enumerate(drawn)]
            expected = point(again, figures)
            for name in FIGURES:
                assert found[name][place] == pytest.approx(
                    np.nan if expected[name] is None else expected[name], nan_ok=True
                ), (kind, key, name)
    assert (
        search.trust(itself(search, np.zeros(1)), np.ones(images))
        == Verified(
            verified.points,
            verified.absents,
            [
                {name: gap for name, gap in one.items() if name in pool[i] or name in verified.absents[i]}
                for i, one in enumerate(verified.gaps)
            ],
        ).trust
    )


@pytest.fixture(scope="module")
def search():
    return Arrays.of(*made(5, 150))


@pytest.fixture(scope="module")
def held(search):
    return hold_against_labels(search, draws=30, seed=1, sizes=(40,))


def test_an_honest_verifier_chooses_as_labels_do(held):
    own = held.rows[0]
    assert held.chosen == ((1, 2.0), (1, 2.0))
    assert abs(own.regret.value) < 1
    assert held.correlation["gain"] >= 0.8
    assert own.gain.value == pytest.approx(held.labels.value - own.regret.value)
    assert 93 < own.accuracy < 97
    assert (own.refused, own.blind) == (0, False)
    assert [row.name for row in held.rows[:2]] == ["the verifier itself", "the verifier, 40 pictures"]


def test_choices_are_judged_by_labels_on_images_that_were_not_drawn():
    """Against a twin that scores lists of items."""
    images, draws, seed = 40, 6, 3
    verified, items = made(9, images)
    pool, records = (
        pools(verified.points),
        [Record(id=i, image=str(i), prompt="", max_new_tokens=1) for i in range(images)],
    )
    affirmed = [{name: gap > 0 for name, gap in one.items()} for one in verified.gaps]
    pseudo = {key: pseudo_items(records, said, pool, affirmed) for key, said in verified.points.items()}

    def qualities(runs, chosen):
        found = {}
        for key, run in runs.items():
            some = [Item(id=n, image=str(n), counts=run[i].counts) for n, i in enumerate(chosen)]
            found[key] = Quality(**{name: point(some, figures)[name] for name in FIGURES})
        return found

    def choice(runs, chosen):
        found = qualities(runs, chosen)
        points = [judge(*key, one, found[BASE], 0.5) for key, one in found.items() if key != BASE]
        best = choose(points)
        return BASE if best is None else (best.layer, best.beta)

    gains, regrets = [], []
    times = np.random.default_rng(seed).multinomial(images, [1 / images] * images, size=draws)
    for row in times:
        drawn = [i for i, often in enumerate(row) for _ in range(often)]
        others = qualities(items, [i for i, often in enumerate(row) if not often])
        by_labels, by_verdicts = (
            100 * gain(others[choice(runs, drawn)], others[BASE]) for runs in (items, pseudo)
        )
        gains.append(by_labels)
        regrets.append(by_labels - by_verdicts)
    found = hold_against_labels(
        Arrays.of(verified, items), draws=draws, seed=seed, worse=(), sizes=(), controls=()
    )
    assert found.labels.value == pytest.approx(np.mean(gains))
    assert found.rows[0].regret.value == pytest.approx(np.mean(regrets))


def test_the_same_seed_gives_the_same_numbers(search):
    first, again, other = (
        hold_against_labels(search, draws=4, seed=seed, sizes=(), worse=WORSE[:2], controls=())
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_errors_at_random_are_refused_and_shared_inventions_are_not_seen(held):
    rows = {row.name: row for row in held.rows}
    flipped, shared = rows["answers at random wrong, 40%"], rows["believes the base's inventions, 50%"]
    assert flipped.refused == 1
    assert flipped.j < 0.3
    assert flipped.rho < rows["answers at random wrong, 13%"].rho
    # it looks as good as the honest one, and orders the points worse
    assert shared.j >= rows["the verifier itself"].j
    assert shared.f == rows["the verifier itself"].f
    assert shared.rho < rows["the verifier itself"].rho


def test_a_verifier_that_believes_the_base_is_named_as_blind(search):
    whole = hold_against_labels(
        search, draws=20, seed=1, sizes=(), worse=[Worse("believer", shares_the_base(0.62))], controls=()
    )
    believer = whole.rows[1]
    assert believer.regret.value > 0.2 * whole.labels.value
    assert believer.refused < 0.5
    assert believer.blind == (believer.warned < 0.5)
    if believer.blind:
        assert "Blind: believer" in "\n".join(sentences(whole))


@pytest.mark.parametrize("worse", WORSE, ids=lambda one: one.name)
def test_worse_verifiers_change_only_what_they_say(search, worse):
    chance = np.random.default_rng(0).random((3, len(search.image)))
    before, after = itself(search, chance), worse.answers(search, chance)
    affirmed, denied = after & ~before, before & ~after
    assert (affirmed | denied).any() or "logits" in worse.name
    if worse.name.startswith(("affirms typical", "believes")):
        assert not denied.any()
        assert not search.true[affirmed].any()
    if worse.name.startswith("denies"):
        assert not affirmed.any()
        assert search.true[denied].all()
    if "base's inventions" in worse.name:
        assert (search.said[0][affirmed] > 0).all()
    if worse.name.startswith("mixed"):
        assert (search.said[0][denied] == 0).all()


def test_faces(held):
    table, page, found = build_table(held), build_page(held, "lead"), to_json(held, {"seed": 1})
    assert len(table.rows) == 1 + len(held.rows) == 1 + 2 + len(WORSE)
    for row in held.rows:
        assert row.name in table.markdown()
    assert page.count('scope="row"') == len(table.rows) + len(held.controls)
    assert json.loads(json.dumps(found, allow_nan=False))["chosen"]["labels"] == {"layer": 1, "beta": 2.0}
    assert found["rows"][0]["gain"]["value"] == held.rows[0].gain.value
    assert [one["name"] for one in found["controls"]] == [one.name for one in CONTROLS]
    assert all(one.name in control_table(held).markdown() for one in CONTROLS)


@pytest.mark.parametrize("width", [80, 140])
def test_a_terminal_cuts_nothing(held, width):
    console = Console(width=width, file=io.StringIO())
    for table in terminal(held, width):
        console.print(table.terminal())
    said = console.file.getvalue()
    assert "…" not in said
    for column in COLUMNS:
        assert column.name in said
    for row in (*held.rows, *held.controls):
        for word in row.name.split():
            assert word in said


def test_one_image_is_not_enough():
    with pytest.raises(InputError, match="draw"):
        hold_against_labels(Arrays.of(*made(1, 1)))
