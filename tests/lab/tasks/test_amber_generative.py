from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reweigh.errors import InputError
from reweigh.lab.tasks.amber.data import GENERATIVE, Words, read_annotations
from reweigh.lab.tasks.amber.generative import (
    METRICS,
    AMBERGenerative,
    _Judge,
    choose_similarity,
    read_pairs,
)
from reweigh.lab.tasks.base import BENCHMARKS, Benchmark, Response, check_questions
from reweigh.lab.tasks.language import Language

RELATION = {
    "person": ["man", "woman"],
    "man": [],
    "woman": ["girl"],
    "dog": ["puppy"],
    "tree": ["forest"],
    "forest": ["tree"],
    "cat": [],
    "kitten": [],
    "bird": ["gull"],
    "eagle": [],
    "orange": [],
    "TV": [],
}
ANNOTATIONS = [
    {"id": 1, "type": "generative", "truth": ["person", "dog"], "hallu": ["cat", "bird"]},
    {"id": 2, "type": "generative", "truth": ["tree", "forest"], "hallu": ["dog"]},
    {"id": 3, "type": "generative", "truth": ["cat", "orange"], "hallu": ["cat", "eagle"]},
    {"id": 4, "type": "discriminative-hallucination", "truth": "no"},
]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "annotations.json").write_text(json.dumps(ANNOTATIONS))
    (tmp_path / "relation.json").write_text(json.dumps(RELATION))
    (tmp_path / "safe_words.txt").write_text("orange\nsign")
    queries = [{"id": n, "image": f"AMBER_{n}.jpg", "query": "Describe this image."} for n in (1, 2, 3)]
    (tmp_path / "query").mkdir()
    (tmp_path / "query" / "query_generative.json").write_text(json.dumps(queries))
    (tmp_path / "pairs.json").write_text(json.dumps([["kitten", "cat"], ["eagle", "bird"], ["eagle", "dog"]]))
    return tmp_path


@pytest.fixture
def amber(data_dir: Path, backend: Language) -> Callable[..., AMBERGenerative]:
    def make(**options: Any) -> AMBERGenerative:
        options.setdefault("table", data_dir / "pairs.json")
        return AMBERGenerative(data_dir, backend=backend, **options)

    return make


def counts_of(benchmark: AMBERGenerative, identity: int, text: str) -> dict[str, float]:
    items, _ = benchmark.score([Response(identity, text)])
    return dict(items[0].counts)


def test_registry_knows_it() -> None:
    made: Benchmark = AMBERGenerative("anywhere")
    assert BENCHMARKS["amber-generative"] is type(made)


def test_records_are_verbatim(amber: Callable[..., AMBERGenerative]) -> None:
    records = amber().records()
    assert [(record.id, record.image) for record in records] == [
        (1, "AMBER_1.jpg"),
        (2, "AMBER_2.jpg"),
        (3, "AMBER_3.jpg"),
    ]
    assert {(record.prompt, record.max_new_tokens) for record in records} == {("Describe this image.", 128)}
    assert amber().records(limit=1) == records[:1]


# Rule, image, response, mentions, hallucinated, covered, cognitive.
RULES = [
    ("a safe word counts as a mention only", 3, "I see an orange.", 1, 0, 0, 0),
    ("an associated word covers its object", 1, "I see a man.", 1, 0, 1, 0),
    ("mentions keep multiplicity", 1, "I see a dog and a dog.", 2, 0, 1, 0),
    ("plurals are lemmatized", 1, "I see two dogs.", 1, 0, 1, 0),
    ("a noun outside the vocabulary is no mention", 1, "I see a table.", 0, 0, 0, 0),
    ("a word of the hallucination list is both", 1, "I see a cat.", 1, 1, 0, 1),
    ("a word associated to that list is both", 1, "I see a gull.", 1, 1, 0, 1),
    ("a stranger is hallucinated and not cognitive", 1, "I see a tree.", 1, 1, 0, 0),
    ("a word near the list is cognitive", 1, "I see a kitten.", 1, 1, 0, 1),
    ("a word near a true word is forgiven and still cognitive", 1, "I see an eagle.", 1, 0, 1, 1),
    ("truth wins over the hallucination list", 3, "I see a cat.", 1, 0, 1, 0),
    ("a capital hides a noun", 1, "Dogs run. The Cat sits.", 0, 0, 0, 0),
    ("only TV in capitals is known", 1, "I see a TV and a tv.", 1, 1, 0, 0),
    ("credit goes to the first equal entry", 2, "I see a tree.", 1, 0, 1, 0),
    ("nothing said is nothing wrong", 1, "", 0, 0, 0, 0),
]


@pytest.mark.parametrize(("rule", "image", "text", "mentions", "wrong", "covered", "cognitive"), RULES)
def test_rule(
    amber: Callable[..., AMBERGenerative],
    rule: str,
    image: int,
    text: str,
    mentions: int,
    wrong: int,
    covered: int,
    cognitive: int,
) -> None:
    counts = counts_of(amber(), image, text)
    seen = [counts[name] for name in ("mentions", "hallucinated_mentions", "covered", "cognitive")]
    assert seen == [mentions, wrong, covered, cognitive]


def test_credit_of_a_shared_word_goes_to_the_other_object(amber: Callable[..., AMBERGenerative]) -> None:
    # The entries are: forest (of tree), tree (of forest), tree, forest. So "tree" is credited to the forest.
    items, _ = amber().score([Response(2, "I see a tree.")])
    assert items[0].details["missed"] == ["tree"]


def test_equal_and_near_entry_may_be_two_objects() -> None:
    words = Words({"a": [], "b": [], "t": []}, frozenset(), frozenset("abt"))
    judge = _Judge(
        words, lambda first, second: {first, second} == {"a", "b"} or first == second, ["t"], ["a", "b"]
    )
    assert judge.judge("b") == "hallucinated"
    assert judge.cognitive == {0, 1}  # the near entry "a" comes first, the equal entry "b" is marked as well


def test_worked_summary(amber: Callable[..., AMBERGenerative]) -> None:
    benchmark = amber()
    responses = [
        # 3 mentions, 1 wrong, 2 of 2 covered, 1 of 2 cognitive
        Response(1, "There is a man with a dog and a cat."),
        # 0 of 2 covered, 0 of 1 cognitive
        Response(2, "The sky is blue."),
        # 3 mentions, 1 wrong, 1 of 2 covered, 0 of 2 cognitive
        Response(3, "I see a cat and an orange and a tree."),
    ]
    items, summary = benchmark.score(responses)
    values = {name: metric.value for name, metric in summary.metrics.items()}
    assert values["chair"] == pytest.approx(100 * 2 / 6)
    assert values["cover"] == pytest.approx(100 * 3 / 6)
    assert values["hal"] == pytest.approx(100 * 2 / 3)
    assert values["cog"] == pytest.approx(100 * 1 / 5)
    assert summary.official == {"CHAIR": 33.3, "Cover": 50.0, "Hal": 66.7, "Cog": 20.0}
    assert summary.scorer["similarity"]["kind"] == "table"
    assert summary.scorer["language"]["backend"] == "nltk"
    text = responses[0].text
    assert [
        (text[mention["start"] : mention["end"]], mention["outcome"])
        for mention in items[0].details["mentions"]
    ] == [("man", "grounded"), ("dog", "grounded"), ("cat", "hallucinated")]
    halves = [*benchmark.score(responses[1:])[0], *benchmark.score(responses[:1])[0]]
    assert benchmark.summarize(halves) == summary


def test_small_files_show_the_official_smoothing(amber: Callable[..., AMBERGenerative]) -> None:
    _, summary = amber().score([Response(1, "I see a cat.")])
    assert summary.metrics["chair"].value == 100
    assert summary.official["CHAIR"] == 99.9  # 1 / 1.001
    assert summary.metrics["hal"].value == 100
    assert summary.official["Hal"] == 100.0
    _, clean = amber().score([Response(1, "")])
    assert clean.metrics["hal"].value == 0
    assert clean.official["Hal"] == 0.1  # 100 - 100 / 1.001


def test_empty_file_is_defined(amber: Callable[..., AMBERGenerative]) -> None:
    items, summary = amber().score([])
    assert items == []
    assert summary.official == {
        "CHAIR": 0.0,
        "Cover": 0.0,
        "Hal": 100.0,
        "Cog": 0.0,
    }  # as the official prints
    assert {name: metric.value for name, metric in summary.metrics.items()} == dict.fromkeys(
        info.name for info in METRICS
    )


@pytest.mark.parametrize(
    ("responses", "message"),
    [
        ([Response(0, "a")], "id 0"),
        ([Response("1", "a")], "id '1'"),
        ([Response(4, "No")], "id 4"),
        ([Response(1, None)], "string"),  # type: ignore[arg-type]
        ([Response(1, "a"), Response(1, "a")], "twice"),
    ],
)
def test_responses_that_cannot_be_scored(
    amber: Callable[..., AMBERGenerative], responses: list[Response], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        amber().score(responses)


def test_answers_to_the_other_half_are_left_out_where_meant(amber: Callable[..., AMBERGenerative]) -> None:
    items, _ = amber(mixed=True).score([Response(1, "I see a dog."), Response(4, "No")])
    assert [item.id for item in items] == [1]


def test_exact_similarity_forgives_nothing_and_says_so(amber: Callable[..., AMBERGenerative]) -> None:
    benchmark = amber(similarity="exact")
    assert counts_of(benchmark, 1, "I see an eagle.")["hallucinated_mentions"] == 1
    described = benchmark.describe([])["similarity"]
    assert described["kind"] == "exact"
    assert "en_core_web_lg" in described["note"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pairs.json", '[["a", "b"], ["c", "d", 0.81], ["e", "f", 0.8]]'),
        ("pairs.tsv", "a\tb\nc\td\t0.81\ne\tf\t0.8\n"),
        ("pairs.csv", "a,b\nc,d,0.81\n\ne,f,0.8"),
    ],
)
def test_tables_of_pairs(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_pairs(path) == {frozenset("ab"), frozenset("cd")}  # 0.8 itself is not above 0.8
    similar, described = choose_similarity("auto", path)
    assert similar("b", "a")
    assert similar("z", "z")
    assert not similar("e", "f")
    assert described["kind"] == "table"


@pytest.mark.parametrize("text", ["[1]", "[[1, 2]]", '[["a"]]', "{", '[["a", "b", "c"]]'])
def test_wrong_table_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pairs.json"
    path.write_text(text)
    with pytest.raises(InputError, match="pairs"):
        choose_similarity("table", path)


def test_similarity_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pairs"):
        choose_similarity("table", None)
    with pytest.raises(InputError, match="glove"):
        choose_similarity("glove", None)
    with pytest.raises(InputError, match="read"):
        choose_similarity("table", tmp_path / "absent.json")


def test_object_without_associations_is_refused(
    data_dir: Path, amber: Callable[..., AMBERGenerative]
) -> None:
    (data_dir / "relation.json").write_text(json.dumps({"dog": [], "cat": []}))
    with pytest.raises(InputError, match=r"relation\.json"):
        amber().score([Response(1, "I see a dog.")])


def test_missing_files_name_the_command(tmp_path: Path, backend: Language) -> None:
    with pytest.raises(InputError, match=r"(?s)annotations\.json.*data amber"):
        AMBERGenerative(tmp_path, backend=backend).score([])
    (tmp_path / "annotations.json").write_text(json.dumps(ANNOTATIONS))
    with pytest.raises(InputError, match="3 of 3"):
        AMBERGenerative(tmp_path, backend=backend).records()
    (tmp_path / "annotations.json").write_text(
        '[{"id": "1", "type": "generative", "truth": [], "hallu": []}]'
    )
    with pytest.raises(InputError, match="AMBER"):
        AMBERGenerative(tmp_path, backend=backend).score([])


def test_real_files_have_the_published_sizes(shared_data: Path) -> None:
    annotations = read_annotations(shared_data / "amber")
    words = Words.read(shared_data / "amber")
    assert len(annotations[GENERATIVE]) == 1004
    assert (len(words.associated), len(words.vocabulary), len(words.safe)) == (340, 418, 9)


def test_naming_every_true_object_cannot_cover_all(shared_data: Path) -> None:
    annotations = read_annotations(shared_data / "amber")
    words = Words.read(shared_data / "amber")
    covered = total = 0
    for row in annotations[GENERATIVE].values():
        judge = _Judge(words, lambda first, second: first == second, row["truth"], row["hallu"])
        assert all(judge.judge(name) in ("grounded", "safe") for name in row["truth"])
        covered += len(judge.covered)
        total += len(row["truth"])
    assert round(100 * covered / total, 1) == 93.3


def test_an_answer_to_another_image_is_refused(shared_data: Path, backend: Language) -> None:
    benchmark = AMBERGenerative(shared_data / "amber", similarity="exact", backend=backend)
    said = Response(1, "a dog", questions=("What is this?",), image="images/AMBER_1.jpg")
    check_questions([said], benchmark.asked)
    with pytest.raises(InputError, match=r"AMBER_2\.jpg"):
        check_questions([replace(said, image="AMBER_2.jpg")], benchmark.asked)


def test_a_query_file_without_images_is_named(tmp_path: Path, backend: Language) -> None:
    (tmp_path / "annotations.json").write_text('[{"id": 1, "type": "generative", "truth": [], "hallu": []}]')
    (tmp_path / "query_generative.json").write_text('[{"id": 1, "query": "Describe this image."}]')
    with pytest.raises(InputError, match=r"query_generative\.json"):
        AMBERGenerative(tmp_path, backend=backend).records()


def test_whole_path_on_real_data(shared_data: Path, backend: Language) -> None:
    benchmark = AMBERGenerative(shared_data / "amber", similarity="exact", backend=backend)
    records = benchmark.records()
    assert len(records) == 1004
    assert {record.prompt for record in records} == {"Describe this image."}
    truth = read_annotations(shared_data / "amber")[GENERATIVE]
    said = [
        Response(record.id, f"I can see a {truth[int(record.id)]['truth'][0]} and a table in the picture.")
        for record in records[:100]
    ]
    _, summary = benchmark.score(said)
    assert 0 < summary.metrics["chair"].value < 60  # type: ignore[operator]
    assert 5 < summary.metrics["cover"].value < 40  # type: ignore[operator]
