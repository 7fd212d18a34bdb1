from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.lab.bootstrap import point
from reweigh.lab.tasks.amber.discriminative import (
    GROUPS,
    AMBERDiscriminative,
    amber_score,
    figures,
    official_figures,
    read_official,
    read_strict,
)
from reweigh.lab.tasks.base import BENCHMARKS, Benchmark, Item, Response

KINDS = {
    "existence": "discriminative-hallucination",
    "state": "discriminative-attribute-state",
    "number": "discriminative-attribute-number",
    "action": "discriminative-attribute-action",
    "relation": "relation",
}


def write_data(folder: Path, questions: list[tuple[str, str]]) -> Path:
    """Write questions (type, truth) with ids from 2 on; id 1 is a generative record."""
    rows: list[dict[str, Any]] = [{"id": 1, "type": "generative", "truth": [], "hallu": []}]
    rows += [{"id": n, "type": kind, "truth": truth} for n, (kind, truth) in enumerate(questions, start=2)]
    queries = [
        {"id": row["id"], "image": f"AMBER_{row['id'] // 3}.jpg", "query": "Is it?"} for row in rows[1:]
    ]
    (folder / "annotations.json").write_text(json.dumps(rows))
    (folder / "query_discriminative.json").write_text(json.dumps(queries))
    return folder


@pytest.fixture
def amber(tmp_path: Path) -> Callable[..., AMBERDiscriminative]:
    questions = [
        ("discriminative-hallucination", "no"),
        ("discriminative-hallucination", "no"),
        ("discriminative-attribute-state", "yes"),
        ("discriminative-attribute-number", "no"),
        ("discriminative-attribute-action", "no"),
        ("discriminative-relation", "yes"),
        ("relation", "no"),
    ]
    write_data(tmp_path, questions)
    return lambda **options: AMBERDiscriminative(tmp_path, **options)


def answers(*texts: str) -> list[Response]:
    return [Response(number, text) for number, text in enumerate(texts, start=2)]


def test_registry_knows_it(tmp_path: Path) -> None:
    made: Benchmark = AMBERDiscriminative(tmp_path)
    assert BENCHMARKS["amber-discriminative"] is type(made)


@pytest.mark.parametrize(
    ("text", "official", "strict"),
    [
        ("Yes", "yes", "yes"),
        ("No", "no", "no"),
        ("no", None, "no"),
        ("YES", None, "yes"),
        ("No.", None, "no"),
        (" No", None, "no"),
        ("No, there is not.", None, "no"),
        ("**No**", None, "no"),
        ("`yes`", None, "yes"),
        ("“Yes”", None, "yes"),
        ("\u200b\ufeffNo", None, "no"),
        ("\uff2e\uff4f", None, "no"),  # full-width letters
        ("¡No!", None, "no"),
        ("No-one is there", None, "no"),
        ("yes/no", None, "yes"),
        ("No,Yes", None, "no"),
        ("Nope", None, None),
        ("Not really", None, None),
        ("Yeah", None, None),
        ("nо", None, None),  # a Cyrillic letter
        ("nó", None, None),
        ("The answer is no", None, None),
        ("1. No", None, None),
        ("", None, None),
        ("...", None, None),
        ("I don't know", None, None),
    ],
)
def test_readings_of_an_answer(text: str, official: str | None, strict: str | None) -> None:
    assert read_official(text) == official
    assert read_strict(text) == strict


@given(st.text(max_size=30))
def test_any_text_has_a_reading_and_official_implies_strict(text: str) -> None:
    assert read_strict(text) in ("yes", "no", None)
    if read_official(text):
        assert read_strict(text) == read_official(text)


@given(st.sampled_from(["yes", "no"]), st.text(alphabet=" \n\t.,;:!*#\"'`([{-_~>", max_size=8))
def test_leading_blanks_and_punctuation_do_not_matter(word: str, prefix: str) -> None:
    assert read_strict(prefix + word.upper() + " indeed") == word


def test_records_are_verbatim(amber: Callable[..., AMBERDiscriminative]) -> None:
    records = amber().records()
    assert [record.id for record in records] == [2, 3, 4, 5, 6, 7, 8]
    assert {(record.prompt, record.max_new_tokens) for record in records} == {("Is it?", 8)}
    items, _ = amber().score([Response(record.id, "No") for record in records])
    assert [item.details["kind"] for item in items] == [
        *("existence", "existence", "state", "number", "action", "relation", "relation")
    ]


def test_worked_summary(amber: Callable[..., AMBERDiscriminative]) -> None:
    # truth:            no    no       yes    no    no     yes   no
    said = answers("No", "no idea", "maybe", "No", "Yes", "No", "No.")
    items, summary = amber().score(said)
    values = {name: metric.value for name, metric in summary.metrics.items()}
    # strict: no, no, unparsed, no, yes, no, no -> right on 1, 2, 4, 7; no five times, rightly four; five are no
    assert values["accuracy"] == pytest.approx(100 * 4 / 7)
    assert values["precision"] == pytest.approx(80)
    assert values["recall"] == pytest.approx(80)
    assert values["f1"] == pytest.approx(100 * 2 * 0.8 * 0.8 / (1.6 + 0.0001))
    assert values["unparsed"] == pytest.approx(100 / 7)
    assert values["existence_f1"] == pytest.approx(100 * 2 / (2 + 0.001))
    assert values["state_accuracy"] == 0
    assert values["state_recall"] is None
    assert "true answer" in summary.metrics["state_recall"].reason
    assert values["attribute_recall"] == pytest.approx(50)
    assert values["relation_precision"] == pytest.approx(50)
    assert (summary.scorer["unparsed"], summary.scorer["unparsed_official"]) == (1, 3)
    assert summary.scorer["parser"] == "strict"
    assert summary.images == 3
    # exact: No, -, -, No, Yes, No, - -> right on 1 and 4; no three times, rightly twice
    assert summary.official["accuracy"] == round(2 / 7.001 * 100, 1)
    assert summary.official["precision"] == round(2 / 3.001 * 100, 1)
    assert summary.official["recall"] == round(2 / 5.001 * 100, 1)
    assert summary.official["f1"] == round(2 * 0.666 * 0.4 / (0.666 + 0.4 + 0.0001) * 100, 1)
    assert summary.official["attribute_accuracy"] == round(1 / 3.003 * 100, 1)
    assert items[2].details == {"kind": "state", "truth": "yes", "answer": None, "correct": False}
    assert [Item.from_json(json.loads(json.dumps(item.to_json()))) for item in items] == items


def test_exact_match_as_the_main_parser(amber: Callable[..., AMBERDiscriminative]) -> None:
    _, summary = amber(parser="official").score(answers("No", "no", "Yes"))
    assert summary.metrics["accuracy"].value == pytest.approx(100 * 2 / 3)
    assert summary.scorer["parser"] == "official"


def test_unparsed_answer_to_a_yes_question_costs_accuracy_only(
    amber: Callable[..., AMBERDiscriminative],
) -> None:
    _, right = amber().score([Response(2, "No"), Response(4, "Yes")])
    _, vague = amber().score([Response(2, "No"), Response(4, "Perhaps")])
    assert vague.metrics["accuracy"].value == 50
    for name in ("precision", "recall", "f1"):
        assert vague.metrics[name].value == right.metrics[name].value == pytest.approx(100, abs=0.01)


def test_never_saying_no_is_zero_not_a_crash(amber: Callable[..., AMBERDiscriminative]) -> None:
    _, summary = amber().score(answers("Yes", "Yes"))
    assert summary.metrics["precision"].value is None
    assert summary.metrics["f1"].value == 0
    assert summary.official["f1"] == 0


def test_empty_file_is_defined(amber: Callable[..., AMBERDiscriminative]) -> None:
    items, summary = amber().score([])
    assert items == []
    assert all(metric.value is None and metric.reason for metric in summary.metrics.values())
    assert set(summary.official.values()) == {0.0}


def official_by_counters(rows: list[tuple[str, str, str]]) -> dict[str, float]:
    """Keep the official counters literally: one set for all and one for each kind, each from 0.001."""
    sets = {kind: dict.fromkeys(("n", "no", "said_no"), 0.001) for kind in ("", *KINDS)}
    for counters in sets.values():
        counters.update(dict.fromkeys(("right", "right_no"), 0))
    for kind, truth, text in rows:
        for counters in (sets[""], sets[kind]):
            counters["n"] += 1
            counters["no"] += truth == "no"
            counters["said_no"] += text == "No"
            counters["right"] += text == truth.capitalize()
            counters["right_no"] += text == "No" and truth == "no"
    printed = {}
    groups = {"": [""], "attribute": ["state", "number", "action"], **{kind: [kind] for kind in KINDS}}
    for group, members in groups.items():

        def share(top: str, bottom: str, members: list[str] = members) -> float:
            tops, bottoms = (sum(sets[member][name] for member in members) for name in (top, bottom))
            return round(tops / bottoms * 100, 1)

        p, r = share("right_no", "said_no"), share("right_no", "no")
        smoothing = 0.001 if group == "existence" else 0.0001
        prefix = f"{group}_" if group else ""
        printed[f"{prefix}accuracy"] = share("right", "n")
        printed[f"{prefix}precision"], printed[f"{prefix}recall"] = p, r
        printed[f"{prefix}f1"] = round(
            2 * (p / 100) * (r / 100) / ((p / 100) + (r / 100) + smoothing) * 100, 1
        )
    return printed


@pytest.mark.parametrize("seed", range(6))
def test_printed_figures_equal_literal_counters(tmp_path: Path, seed: int) -> None:
    shuffler = random.Random(seed)
    size = shuffler.choice([1, 5, 40, 400])
    kinds = [shuffler.choice(list(KINDS)) for _ in range(size)]
    truths = [shuffler.choice(["yes", "no"]) for _ in range(size)]
    texts = [shuffler.choice(["Yes", "No", "no", "?"]) for _ in range(size)]
    write_data(tmp_path, [(KINDS[kind], truth) for kind, truth in zip(kinds, truths, strict=True)])
    items, summary = AMBERDiscriminative(tmp_path).score(answers(*texts))
    assert summary.official == official_by_counters(list(zip(kinds, truths, texts, strict=True)))
    shuffler.shuffle(items)
    cut = shuffler.randrange(size + 1)
    assert AMBERDiscriminative(tmp_path).summarize([*items[cut:], *items[:cut]]) == summary


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        ([Response(1, "a description")], "id 1"),
        ([Response(99, "No")], "id 99"),
        ([Response("2", "No")], "id '2'"),
        ([Response(2, None)], "string"),  # type: ignore[arg-type]
        ([Response(2, "No"), Response(2, "No")], "twice"),
    ],
)
def test_responses_that_cannot_be_scored(
    amber: Callable[..., AMBERDiscriminative], responses: list[Response], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        amber().score(responses)
    assert amber(mixed=True).score([Response(1, "a description")])[0] == []


def test_unknown_parser_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lenient"):
        AMBERDiscriminative(tmp_path, parser="lenient")


def test_without_queries_questions_are_resampled_and_it_is_said(tmp_path: Path) -> None:
    write_data(tmp_path, [("relation", "no")] * 6)
    (tmp_path / "query_discriminative.json").unlink()
    _, summary = AMBERDiscriminative(tmp_path).score(answers("No", "Yes", "No"))
    assert summary.scorer["resampled"] == "questions"
    assert summary.images == 3


def test_amber_score_joins_both_halves(amber: Callable[..., AMBERDiscriminative]) -> None:
    descriptions = [
        Item(id=n, image=f"AMBER_{n}.jpg", counts={"mentions": 4, "hallucinated_mentions": n})
        for n in (0, 1, 2)
    ]
    said, _ = amber().score(answers("No", "Yes", "Yes", "No"))
    metric = amber_score(descriptions, said)
    f1 = point(said, figures)["f1"]
    assert metric.value == pytest.approx(((100 - 25) + f1) / 2)  # type: ignore[operator]
    assert metric.low < metric.value < metric.high  # type: ignore[operator]
    assert amber_score(descriptions, []).value is None


def test_answers_are_counted(amber: Callable[..., AMBERDiscriminative]) -> None:
    items, _ = amber().score(answers("No", "Yes", "No", "perhaps"))
    assert (point(items, figures)["answered_yes"], point(items, figures)["answered_no"]) == (1, 2)


def test_groups_are_sums_of_kinds() -> None:
    assert set(GROUPS[""]) == set(KINDS)
    assert official_figures([]).keys() == {
        f"{group}_{name}" if group else name
        for group in GROUPS
        for name in ("accuracy", "precision", "recall", "f1")
    }


def test_real_questions_have_the_published_counts(shared_data: Path) -> None:
    benchmark = AMBERDiscriminative(shared_data / "amber")
    records = benchmark.records()
    items, summary = benchmark.score([Response(record.id, "No") for record in records])
    kinds = [item.details["kind"] for item in items]
    assert len(records) == 14_216
    assert {kind: kinds.count(kind) for kind in sorted(set(kinds))} == {
        **{"action": 792, "existence": 4_924, "number": 2_072},
        **{"relation": 1_664, "state": 4_764},
    }
    assert summary.official["existence_precision"] == 100.0
    assert summary.official["relation_accuracy"] == round(689 / 1664.001 * 100, 1)
    assert summary.metrics["recall"].value == 100
    assert summary.images == 1004
