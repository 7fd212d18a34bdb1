"""Order-preserving rescaling: twins of every figure, the rank arm's exact zero, and the closure's planted values."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import NumericsError
from reweigh.lab.arms.ablate.arms import BUDGET, Variant
from reweigh.lab.paper.analyses.rescaling import (
    BOTH,
    CENTERED,
    CHANGE,
    CLOSED,
    EITHER,
    JACCARD,
    SHIFT,
    SPEARMAN,
    STEPS,
    STRONGEST,
    WINNER,
    Quantity,
    Rescaling,
    ranks,
    spearman,
    step_counts,
    strongest,
)
from reweigh.lab.paper.analyses.steps import Field
from reweigh.lab.paper.corpus.image import StudyImage
from reweigh.lab.paper.corpus.reading import PositionSummary
from reweigh.lab.paper.study import compute
from reweigh.tables.table import ReferenceTable

VOCAB, BETA = 12, 1.5


def twin_spearman(first, second):
    """Pearson's correlation of mean ranks, counted one against one."""

    def mean_ranks(values):
        return [sum(o < v for o in values) + (sum(o == v for o in values) + 1) / 2 for v in values]

    one, other = mean_ranks(first), mean_ranks(second)
    if len(set(one)) == 1 or len(set(other)) == 1:
        return None
    return np.corrcoef(one, other)[0, 1]


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=9))
def test_spearman_is_the_twins(pairs):
    first, second = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    expected = twin_spearman(first.tolist(), second.tolist())
    found = spearman(first, second)
    assert np.isnan(found) if expected is None else found == pytest.approx(expected)


def test_small_pieces():
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]
    assert np.isnan(spearman(np.array([1.0]), np.array([2.0])))
    assert strongest(np.array([9, 4, 7]), np.array([0.5, 0.5, 0.1])) == 4
    assert strongest(np.array([9, 4]), np.zeros(2)) is None


def test_a_step_compares_sets_strongest_and_winner():
    ids, logits = np.array([5, 2, 8]), np.array([2.0, 1.5, 0.0])
    none = np.array([])
    edited = np.array([0.1, 0.3, 0.0])
    found = step_counts(ids, logits, (none, none), (np.zeros(3), np.array([0.6, 0.0, 0.0])), 1.0)
    assert found == {
        Quantity("", STEPS): 1,
        Quantity(WINNER, STEPS): 1,
        Quantity("", EITHER): 1,  # and not both
        Quantity(JACCARD, EITHER): 0,
        Quantity(STRONGEST, EITHER): 1,
    }
    still = step_counts(ids, logits, (none, none), (edited, edited), 1.0)
    assert still[Quantity("", BOTH)] == still[Quantity(JACCARD, BOTH)] == 1
    assert still[Quantity(STRONGEST, BOTH)] == still[Quantity(WINNER, STEPS)] == 0
    empty = step_counts(ids, logits, (none, none), (np.zeros(3), np.zeros(3)), 1.0)
    assert set(empty) == {Quantity("", STEPS), Quantity(WINNER, STEPS)}  # neither set edits


def made_image(number, *, closeness=0.5):
    """An image of five steps with random candidates and evidence; ``closeness`` moves equalized evidence toward DMRR."""
    random = np.random.default_rng(number)
    sizes = random.integers(2, 6, 5)
    ids = np.concatenate([random.choice(VOCAB, size, replace=False) for size in sizes])
    dmrr, prob = random.uniform(0.01, 1, (2, VOCAB)).astype(np.float32)
    logprob = np.log(prob)
    none = PositionSummary(np.ones(1), np.zeros((1, 1)), np.zeros((1, 1), dtype=np.int32))
    return StudyImage(
        number=number,
        id=number,
        key=f"{number}#{number}",
        text="",
        tokens=np.zeros(5, dtype=np.int64),
        probability=np.ones(5),
        first=np.concatenate([[0], np.cumsum(sizes)]),
        candidates=ids,
        logits=random.normal(size=len(ids)).astype(np.float32),
        evidence={
            "dmrr": dmrr,
            "dmrr-rescaled": dmrr.copy(),
            "prob": prob,
            "logprob": logprob,
            "logprob-rescaled": (logprob + random.normal(0, 0.4, VOCAB)).astype(np.float32),
            "prob-equalized": (prob + closeness * (dmrr - prob)).astype(np.float32),
        },
        original=none,
        equalized=none,
    )


def table(references, scale, readout="dmrr"):
    tokens = np.array(sorted(references), dtype=np.int64)
    values = np.array([references[int(token)] for token in tokens])
    return ReferenceTable(0, scale, tokens, values, np.full(len(tokens), 9), {"readout": readout})


REGISTERED = [0, 1, 2, 4, 5, 7, 8, 10]
RANKED = table({token: 0.5 for token in REGISTERED}, 0.6)
LOGGED = table({token: -0.8 for token in REGISTERED[:-1]}, 0.7, "logprob")


class Corpus(list):
    vocab_size = VOCAB


def material(images):
    def arm(name, *, evidence=None):
        found = {"rank": RANKED, "probability": LOGGED, BUDGET: RANKED}[name]
        return Variant(name, found)

    return SimpleNamespace(
        evaluation=Corpus(images), table=RANKED, arm=arm, beta=BETA, draws={"resamples": 50, "seed": 2}
    )


def twin_figures(images):
    """Every figure of the probability arm by plain loops."""
    change, centered, correlations, steps = [], [], [], []
    for image in images:
        before, after = image.evidence["logprob"], image.evidence["logprob-rescaled"]

        def s(vector, v):
            b = LOGGED.reference(int(v))
            return 0.0 if b is None else min(max((b - float(vector[v])) / LOGGED.b0, 0.0), 1.0)

        own, shifted = [], []
        every = [v for v in image.candidates if LOGGED.reference(int(v)) is not None]
        shift = np.mean([float(after[v]) - float(before[v]) for v in every])

        def unshifted(v, after=after, shift=shift):
            b = LOGGED.reference(int(v))
            return min(max((b - (float(after[v]) - shift)) / LOGGED.b0, 0.0), 1.0)

        for step in range(5):
            ids, logits = image.step(step)
            known = [v for v in ids if LOGGED.reference(int(v)) is not None]
            own += [s(after, v) - s(before, v) for v in known]
            shifted += [unshifted(v) - s(before, v) for v in known]
            one = twin_spearman([before[v] for v in known], [after[v] for v in known]) if known else None
            if one is not None:
                correlations.append(one)
            sets = [{int(v) for v in ids if s(vector, v) > 0} for vector in (before, after)]
            tops = [
                min(edited, key=lambda v, vector=vector: (-s(vector, v), v)) if edited else None
                for edited, vector in zip(sets, (before, after), strict=True)
            ]
            wins = [
                min(
                    range(len(ids)),
                    key=lambda i, vector=vector: (-(float(logits[i]) - BETA * s(vector, ids[i])), ids[i]),
                )
                for vector in (before, after)
            ]
            steps.append((sets, tops[0] != tops[1], wins[0] != wins[1]))
        change += own
        centered += shifted
    either = [one for one in steps if one[0][0] or one[0][1]]
    both = [one for one in steps if one[0][0] and one[0][1]]

    def jaccard(chosen):
        return np.mean([len(a & b) / len(a | b) for (a, b), _, _ in chosen])

    return {
        (CHANGE, None): np.mean(np.abs(change)),
        (SHIFT, None): np.mean(change),
        (CENTERED, None): np.mean(np.abs(centered)),
        (SPEARMAN, None): np.mean(correlations),
        (JACCARD, EITHER): jaccard(either),
        (JACCARD, BOTH): jaccard(both),
        (STRONGEST, EITHER): np.mean([one[1] for one in either]),
        (STRONGEST, BOTH): np.mean([one[1] for one in both]),
        (WINNER, None): np.mean([one[2] for one in steps]),
    }, (len(steps), len(either), len(both))


def test_every_figure_is_the_twins_and_the_rank_arm_is_exactly_still(tmp_path):
    images = [made_image(number) for number in range(30)]
    outcome = compute(Rescaling, material(images))
    expected, (steps, either, both) = twin_figures(images)
    for (quantity, over), value in expected.items():
        wanted = {"arm": "probability", "quantity": quantity} | ({"over": over} if over else {})
        assert outcome.frame.one(**wanted).value == pytest.approx(value, rel=1e-9), quantity
    assert outcome.frame.pick(arm="probability", quantity=WINNER).distinct("count") == [steps]
    assert outcome.frame.pick(arm="probability", quantity=JACCARD, over=EITHER).distinct("count") == [either]
    assert outcome.frame.pick(arm="probability", quantity=JACCARD, over=BOTH).distinct("count") == [both]
    still = [
        row.estimate
        for row in outcome.frame
        if row["arm"] == "rank" and row["quantity"] not in (SPEARMAN, JACCARD)
    ]
    assert len(still) == 6
    assert all(row.parts == (0.0, 0.0, 0.0) for row in still)
    assert outcome.frame.one(arm="probability", quantity=CHANGE).value > 0.01
    Rescaling().draw(outcome.frame, tmp_path / "figure")
    assert (tmp_path / "figure.png").is_file()


def test_moved_ranks_are_an_error():
    images = [made_image(number) for number in range(30)]
    moved = images[7].evidence["dmrr-rescaled"]
    moved[3] = np.nextafter(moved[3], np.float32(1))
    with pytest.raises(NumericsError, match="image 7"):
        compute(Rescaling, material(images))


@pytest.mark.parametrize(("closeness", "closed"), [(1.0, 1.0), (0.0, 0.0)])
def test_the_closure_of_planted_equalizations(closeness, closed):
    images = [made_image(number, closeness=closeness) for number in range(30)]
    [row] = compute(Rescaling, material(images)).frame.pick(quantity=CLOSED)
    assert row.estimate.value == pytest.approx(closed, abs=1e-6)
    assert row["count"] == sum(len(image.candidates) for image in images)


def test_a_closure_may_be_negative_and_says_so():
    outcome = compute(Rescaling, material([made_image(number, closeness=-0.4) for number in range(100)]))
    assert outcome.frame.one(quantity=CLOSED).value < 0
    assert "the opposite holds" in outcome.sentences[-1]


def test_a_shift_of_all_log_probabilities_leaves_nothing_once_it_is_taken_out():
    images = []
    for number in range(30):
        image = made_image(number)
        image.evidence["logprob-rescaled"][:] = image.evidence["logprob"] - np.float32(0.5)
        images.append(image)
    frame = compute(Rescaling, material(images)).frame
    assert frame.one(arm="probability", quantity=CHANGE).value > 0.05
    assert frame.one(arm="probability", quantity=CENTERED).value == pytest.approx(0.0, abs=1e-6)


def test_a_field_is_zero_where_nothing_is_registered():
    field = Field.of(Variant("rank", table({1: 0.5}, 0.5), factor=2.0), 4)
    evidence, ids = np.array([0.0, 0.25, 0.0]), np.array([0, 1, 3])
    assert field.strengths(ids, evidence).tolist() == [0.0, 0.5, 0.0]
    assert np.isnan(field.deficits(ids, evidence)).tolist() == [True, False, True]
    assert field.factor == 2.0
    assert field.registered(np.array([0, 1])).tolist() == [False, True]
