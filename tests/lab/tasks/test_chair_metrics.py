from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.lab.bootstrap import point
from reweigh.lab.tasks.base import Item
from reweigh.lab.tasks.chair.metrics import METRICS, count_caption, figures, summarize_metrics

OBJECTS = ["dog", "cat", "bus", "person", "tv"]
captions = st.tuples(
    st.lists(st.sampled_from(OBJECTS), max_size=6), st.sets(st.sampled_from(OBJECTS)), st.integers(0, 40)
)
corpora = st.lists(captions, min_size=1, max_size=8)


def items(corpus: list[tuple[list[str], set[str], int]]) -> list[Item]:
    return [
        Item(id=index, image=index, counts=count_caption(named, truth, words=words))
        for index, (named, truth, words) in enumerate(corpus)
    ]


def by_hand(corpus: list[tuple[list[str], set[str], int]]) -> dict[str, float | None]:
    """Walk over mentions one by one, straight from the definitions."""
    wrong_captions = mentions = wrong = recovered = reference = generated = wrong_distinct = words = 0
    for named, truth, length in corpus:
        wrong_captions += any(name not in truth for name in named)
        for name in named:
            mentions += 1
            wrong += name not in truth
        for name in dict.fromkeys(named):
            generated += 1
            recovered += name in truth
            wrong_distinct += name not in truth
        reference += len(truth)
        words += length

    def share(top: float, bottom: float) -> float | None:
        return 100 * top / bottom if bottom else None

    def mean(first: float | None, second: float | None) -> float | None:
        if first is None or second is None:
            return None
        return 2 * first * second / (first + second) if first + second else 0.0

    chair_i, recall = share(wrong, mentions), share(recovered, reference)
    precision = None if chair_i is None else 100 - chair_i
    set_precision = share(recovered, generated)
    return {
        "chair_s": share(wrong_captions, len(corpus)),
        "chair_i": chair_i,
        "recall": recall,
        "precision": precision,
        "f1": mean(precision, recall),
        "length": words / len(corpus),
        "mentions": mentions / len(corpus),
        "chair_i_distinct": share(wrong_distinct, generated),
        "set_precision": set_precision,
        "set_f1": mean(set_precision, recall),
    }


def test_worked_example() -> None:
    corpus = [
        (["dog", "dog", "cat"], {"dog", "person"}, 10),  # one of three wrong, 1 of 2 recovered
        ([], {"bus"}, 4),  # stays in the denominators of CHAIR_S and recall
        (["bus"], {"bus"}, 6),
    ]
    result = point(items(corpus), figures)
    assert result["chair_s"] == pytest.approx(100 / 3)
    assert result["chair_i"] == pytest.approx(25)
    assert result["recall"] == pytest.approx(50)
    assert result["precision"] == pytest.approx(75)
    assert result["f1"] == pytest.approx(60)
    assert result["length"] == pytest.approx(20 / 3)
    assert result["chair_i_distinct"] == pytest.approx(100 / 3)
    assert result["set_precision"] == pytest.approx(200 / 3)
    assert result["set_f1"] == pytest.approx(2 * (200 / 3) * 50 / (200 / 3 + 50))


@given(corpora)
def test_figures_follow_the_definitions(corpus: list[tuple[list[str], set[str], int]]) -> None:
    expected = by_hand(corpus)
    result = point(items(corpus), figures)
    assert result.keys() == expected.keys() == {info.name for info in METRICS}
    for name, value in expected.items():
        assert result[name] == (None if value is None else pytest.approx(value)), name


@given(corpora, st.data())
def test_adding_a_grounded_mention_never_raises_chair(
    corpus: list[tuple[list[str], set[str], int]], data: st.DataObject
) -> None:
    with_truth = [index for index, (_, truth, _) in enumerate(corpus) if truth]
    if not with_truth:
        return
    index = data.draw(st.sampled_from(with_truth))
    named, truth, words = corpus[index]
    more = [*corpus]
    more[index] = ([*named, data.draw(st.sampled_from(sorted(truth)))], truth, words + 1)
    before, after = point(items(corpus), figures), point(items(more), figures)
    for name in ("chair_i", "chair_s", "chair_i_distinct"):
        assert after[name] is not None
        assert before[name] is None or after[name] <= before[name] + 1e-9
    assert after["recall"] >= before["recall"] - 1e-9  # type: ignore[operator]


@given(corpora, st.randoms(use_true_random=False))
def test_order_of_captions_does_not_matter(
    corpus: list[tuple[list[str], set[str], int]], shuffler: random.Random
) -> None:
    scored = items(corpus)
    shuffled = [*scored]
    shuffler.shuffle(shuffled)
    assert summarize_metrics(shuffled) == summarize_metrics(scored)


def test_nothing_is_undefined_with_a_reason() -> None:
    assert all(metric.value is None and metric.reason for metric in summarize_metrics([]).values())
    empty = summarize_metrics(items([([], set(), 3)]))
    assert empty["chair_s"].value == 0
    assert empty["chair_i"].value is None
    assert "caption" in empty["chair_i"].reason
    assert "reference" in empty["recall"].reason
