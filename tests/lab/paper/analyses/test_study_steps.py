"""Detection, allocation and confidence on made material with known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_material import BED, CAT, DOG, DOT, ING, THE, VOCAB, A, image, material, table

from reweigh.files.artifacts import read_json
from reweigh.lab.frame import Frame
from reweigh.lab.paper.analyses.allocation import FUNCTION_WORDS, Allocation
from reweigh.lab.paper.analyses.confidence import Confidence
from reweigh.lab.paper.analyses.detection import Detection, recorded
from reweigh.lab.paper.study import compute

FLAT = [0.5] * VOCAB


def value(rows, **wanted):  # type: ignore[no-untyped-def]
    return rows.one(**wanted).value


# detection


def low(*tokens: int) -> list[float]:
    """Evidence that is low for some tokens."""
    return [0.1 if token in tokens else 0.9 for token in range(VOCAB)]


def detected(number: int):  # type: ignore[no-untyped-def]
    """A grounded mention (dog) and a hallucinated one (cat); rank alone knows the cat lacks evidence.

    The step before each onset has two candidates half a logit apart.
    """
    near = [(THE, 1.0), (A, 0.5)]
    steps = [
        (THE, near),
        (DOG, [(DOG, 3.0), (BED, 0.0)]),
        (A, [(A, 1.0), (ING, 0.5)]),
        (CAT, [(CAT, 3.0), (BED, 0.0)]),
    ]
    # rank lowers A before the cat: it switches there, and only there; probability lowers THE before the dog
    rank, probability = low(CAT, A), low(DOG, THE)
    return image(number, steps, [(1, False), (3, True)], {"dmrr": rank, "prob": probability, "logprob": FLAT})


def test_planted_detection_and_control() -> None:
    made = material(detected)
    rows = Frame(recorded(made))
    assert value(rows, part="detection", arm="rank") == 1.0
    assert value(rows, part="detection", arm="probability") == 0.0
    assert value(rows, part="detection", arm="rank minus probability") == 1.0
    control = {"part": "raw control", "quantity": "selectivity"}
    # window of the cat: steps 0 to 2. Rank switches step 2 (A loses to ING); probability switches step 0 (THE loses to A),
    # which lies in the windows of both mentions
    assert value(rows, **control, at="window", arm="rank") == 100.0
    assert value(rows, **control, at="window", arm="probability") == 0.0
    assert value(rows, **control, at="window", arm="rank minus probability") == 100.0
    assert value(rows, **control, at="onset", arm="rank") == 0.0  # three logits apart: no beta of 1 switches
    assert Frame(recorded(made)) == rows  # intervals repeat by seed


def test_a_permuted_label_is_detected_by_chance() -> None:
    rng = np.random.default_rng(0)

    def chance(number: int):  # type: ignore[no-untyped-def]
        evidence = rng.random(VOCAB)
        steps = [(DOG, [(DOG, 1.0), (CAT, 0.0)])] * 4
        mentions = [(step, bool(rng.random() < 0.5)) for step in range(4)]
        return image(number, steps, mentions, {"dmrr": evidence, "prob": rng.random(VOCAB), "logprob": FLAT})

    rows = Frame(recorded(material(chance, images=400)))
    row = rows.one(part="detection", arm="rank")
    assert row.value == pytest.approx(0.5, abs=0.06)
    assert row.low < 0.5 < row.high


def test_without_hallucinated_mention_it_says_so() -> None:
    def clean(number: int):  # type: ignore[no-untyped-def]
        return image(number, [(DOG, [(DOG, 1.0), (CAT, 0.0)])], [(0, False)], {"dmrr": FLAT, "prob": FLAT})

    outcome = compute(Detection, material(clean))
    assert not outcome.frame
    assert "no hallucinated mention" in outcome.sentences[0]
    few = compute(Detection, material(detected, images=29))
    assert not few.frame
    assert "29 images" in few.sentences[0]


# allocation


def allocated(number: int):  # type: ignore[no-untyped-def]
    """Before the hallucinated mention the rank field takes THE, before the grounded one the probability field takes DOT."""
    before_cat = [(THE, 1.0), (ING, 0.5)]
    before_dog = [(DOT, 1.0), (BED, 0.5)]
    far = [(ING, 9.0), (BED, 0.0)]
    steps = [
        (THE, before_cat),
        (CAT, [(CAT, 9.0), (BED, 0.0)]),
        *[(ING, far)] * 4,
        (DOT, before_dog),
        (DOG, [(DOG, 9.0)]),
    ]
    rank, logprob = np.full(VOCAB, 1.0), np.full(VOCAB, 1.0)
    rank[THE] = 0.2  # deficit 0.8 of THE under rank
    logprob[DOT] = 0.1  # deficit 0.9 of DOT under probability
    return image(number, steps, [(1, True), (7, False)], {"dmrr": rank, "prob": FLAT, "logprob": logprob})


def test_planted_allocation() -> None:
    tokens = dict.fromkeys((THE, ING, DOT, BED), 1.0)
    rows = compute(Allocation, material(allocated, rank=table(tokens), probability=table(tokens))).frame
    # With rank's magnitudes (0.8 at step 0 alone) the rank order takes THE and switches; the probability order has nothing
    # but ids to go by there: ING (higher id) keeps, THE (lower id) is hit as well: both switch.
    assert value(rows, group="effect", quantity="rank", at="window") == 0.0
    # With probability's magnitudes (0.9 at step 6 alone) either order hits the lower of DOT and BED, which is DOT.
    assert value(rows, group="effect", quantity="probability", at="window") == 0.0


def test_an_assignment_that_alone_switches_is_counted_by_role() -> None:
    def made(number: int):  # type: ignore[no-untyped-def]
        """Rank would take A, probability BED; BED does not lead, so the probability order switches nothing."""
        steps = [(A, [(A, 1.0), (BED, 0.5)]), (CAT, [(CAT, 9.0), (DOG, 0.0)])]
        rank, logprob = np.full(VOCAB, 1.0), np.full(VOCAB, 1.0)
        rank[A], logprob[BED] = 0.1, 0.1
        grounded = number % 4 == 0
        return image(number, steps, [(1, not grounded)], {"dmrr": rank, "prob": FLAT, "logprob": logprob})

    tokens = dict.fromkeys((A, BED), 1.0)
    rows = compute(Allocation, material(made, rank=table(tokens), probability=table(tokens))).frame
    # every window switches under the rank order, hallucinated or not: no selectivity
    assert value(rows, group="effect", quantity="rank", at="window") == 0.0
    assert value(rows, group="share", quantity="rank", at="window") == 100.0  # "a" is structural
    assert value(rows, group="share", quantity="probability", at="window") is None  # it alone switches none

    def selective(number: int):  # type: ignore[no-untyped-def]
        """The same, but before grounded mentions the leader is far ahead."""
        grounded = number % 4 == 0
        lead = 5.0 if grounded else 1.0
        found = made(number)
        steps = [(A, [(A, lead), (BED, 0.5)]), (CAT, [(CAT, 9.0), (DOG, 0.0)])]
        return image(number, steps, [(1, not grounded)], dict(found.evidence))

    rows = compute(Allocation, material(selective, rank=table(tokens), probability=table(tokens))).frame
    for donor in ("rank", "probability"):
        assert value(rows, group="effect", quantity=donor, at="window") == 100.0
    roles = {row["quantity"]: row.estimate.value for row in rows.pick(group="role")}
    assert roles == {"structural": 100.0, "lexical": 0.0, "punctuation": 0.0, "special": 0.0}


def test_effects_of_roles_sum_to_the_effect() -> None:
    rng = np.random.default_rng(5)

    def noisy(number: int):  # type: ignore[no-untyped-def]
        steps = []
        for _ in range(12):
            ids = rng.permutation(VOCAB)[:4]
            logits = np.sort(rng.normal(size=4))[::-1]
            steps.append((int(ids[0]), list(zip(ids.tolist(), logits.tolist(), strict=True))))
        mentions = [(step, bool(rng.random() < 0.4)) for step in (3, 7, 11)]
        return image(
            number, steps, mentions, {"dmrr": rng.random(VOCAB), "prob": FLAT, "logprob": rng.random(VOCAB)}
        )

    tokens = {token: 0.8 for token in range(1, VOCAB)}
    found = material(noisy, rank=table(tokens, 0.5), probability=table(tokens, 0.4))
    rows = compute(Allocation, found).frame
    roles = sum(row.estimate.value for row in rows.pick(group="role"))
    assert roles == pytest.approx(value(rows, group="effect", quantity="rank", at="window"))


def test_the_list_of_structural_words_is_published_with_the_result(tmp_path: Path) -> None:
    Allocation().extras(Frame(), material(allocated), tmp_path)
    words, fragment = Allocation.files
    listed = read_json(tmp_path / words)["structural"]
    assert {word for words in listed.values() for word in words} == FUNCTION_WORDS
    assert "beneath" in (tmp_path / fragment).read_text()


def test_without_registered_tokens_allocation_says_so() -> None:
    outcome = compute(Allocation, material(allocated))
    assert not outcome.frame
    assert "registered" in outcome.sentences[0]


# confidence


def test_planted_confidence() -> None:
    def made(number: int, every: int = 4):  # type: ignore[no-untyped-def]
        """Four onsets; the confident one is hallucinated in one image of four and then lacks two units of evidence."""
        bad = number % every == 0
        steps = [(DOG, [(DOG, 1.0)])] * 3 + [(CAT if bad else DOG, [(DOG, 1.0)])]
        evidence = np.full(VOCAB, 1.0)
        evidence[CAT] = 0.2
        mentions = [(0, True), (1, True), (2, True), (3, bad)]
        return image(number, steps, mentions, {"dmrr": evidence, "prob": FLAT}, [0.1, 0.2, 0.3, 0.9])

    found = material(made, rank=table({DOG: 0.9, CAT: 1.0}, scale=0.4))
    rows = compute(Confidence, found).frame
    assert value(rows, quantity="hallucinated, %") == 25.0
    assert value(rows, quantity="median deficit, hallucinated") == pytest.approx(2.0, rel=1e-6)
    assert value(rows, quantity="median deficit, grounded") == 0.0
    row = rows.one(quantity="difference of medians")
    assert (row.low, row.high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert "40 images are too few" in compute(Confidence, found).sentences[1]
    found = material(made, images=100, rank=table({DOG: 0.9, CAT: 1.0}, scale=0.4))
    assert "As in the paper" in compute(Confidence, found).sentences[1]
    rare = material(
        lambda number: made(number, every=8), images=100, rank=table({DOG: 0.9, CAT: 1.0}, scale=0.4)
    )
    assert "13 confident hallucinated onsets are too few" in compute(Confidence, rare).sentences[1]
