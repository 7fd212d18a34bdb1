"""A benchmark of one's own pictures: the file is read strictly, mentions are counted as CHAIR, questions are POPE's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from reweigh.cli.app import app
from reweigh.errors import InputError
from reweigh.files.artifacts import read_json
from reweigh.lab.tasks import Response, open_benchmark
from reweigh.lab.tasks.objects import Truth
from reweigh.lab.tasks.world import World
from reweigh.world.drawings import CATALOGUE
from reweigh.world.vocabulary import surfaces

ROWS = [
    {"image": "a.png", "objects": ["dog", "Wine Glass"], "synonyms": {"dog": ["puppy"], "person": ["people", "man"]}},
    {"image": "b.png", "objects": ["person"], "absent": ["cat", "dog"]},
    {"image": "c.png", "objects": []},
]  # fmt: skip


def written(folder: Path, rows=ROWS) -> Path:
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get("image"), str):
            Image.new("RGB", (8, 8)).save(folder / row["image"])
    path = folder / "truth.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def opened(folder: Path, name: str = "objects", **options):
    return open_benchmark(name, images=folder, truth=written(folder), **options)


def test_every_object_of_the_file_is_vocabulary(tmp_path):
    truth = Truth(written(tmp_path))
    assert truth.names == ["cat", "dog", "person", "wine glass"]
    text = "Two Puppies and a MAN with wine glasses; a catalogue, dogs, a glass. People!"
    found = truth.mentions(text)
    assert [name for _, name, *_ in found] == ["dog", "person", "wine glass", "dog", "person"]
    for word, _, start, end in found:
        assert text[start:end] == word


def test_letters_that_change_their_length_move_no_mention(tmp_path):
    text = "İİİ a dog"
    ((word, _, start, end),) = Truth(written(tmp_path)).mentions(text)
    assert text[start:end] == word == "dog"


def test_figures_are_those_of_chair(tmp_path):
    benchmark = opened(tmp_path)
    assert [record.id for record in benchmark.records()] == ["a.png", "b.png", "c.png"]
    said = {"a.png": "A dog, a dog and a cat.", "b.png": "A man.", "c.png": "Nothing."}
    items, summary = benchmark.score([Response(image, text) for image, text in said.items()])
    value = {name: one.value for name, one in summary.metrics.items()}
    assert value["chair_s"] == pytest.approx(100 / 3)
    assert value["chair_i"] == pytest.approx(25)
    assert value["chair_i_distinct"] == pytest.approx(100 / 3)
    assert value["recall"] == pytest.approx(200 / 3)
    assert items[0].details["missed"] == ["wine glass"]
    assert summary.scorer["vocabulary"] == ["cat", "dog", "person", "wine glass"]
    assert benchmark.objects("a puppy") == ["dog"]


def test_the_worlds_own_truth_gives_the_worlds_own_figures(tmp_path):
    """The world's benchmark is the twin: same pictures, a vocabulary written by hand."""
    world = World(tmp_path, scenes=6)
    scenes = world.scenes()
    synonyms = {name: [form for pair in surfaces(name) for form in pair] for name in CATALOGUE}
    rows = [{"image": f"{scene.id}.png", "objects": sorted(scene.objects)} for scene in scenes]
    rows[0]["synonyms"] = synonyms
    world.records()
    path = tmp_path / "truth.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = "A man and two women walk a dog past a bus. There is a phone, a fire hydrant, three plates of food and a sofa."
    mine, _ = open_benchmark("objects", truth=path).score([Response(row["image"], text) for row in rows])
    theirs, _ = world.score([Response(scene.id, text) for scene in scenes])
    assert [one.counts for one in mine] == [one.counts for one in theirs]
    assert [one.details["mentions"] for one in mine] == [one.details["mentions"] for one in theirs]


def test_questions_ask_for_what_is_there_and_for_as_much_that_is_not(tmp_path):
    benchmark = opened(tmp_path, "objects-questions")
    asked = {record.id: record for record in benchmark.records()}
    assert asked["a.png/dog"].prompt == "Is there a dog in the image?"
    assert {one for one in asked if one.startswith("a.png/")} == {
        "a.png/dog",
        "a.png/wine glass",
        "a.png/cat",
        "a.png/person",
    }
    assert [one for one in asked if one.startswith("b.png/")] == ["b.png/person", "b.png/cat", "b.png/dog"]
    assert not [one for one in asked if one.startswith("c.png/")]
    assert benchmark.records() == benchmark.records(seed=42)
    answers = [Response(one, "Yes" if "dog" in one else "No") for one in asked]
    _, summary = benchmark.score(answers)
    value = {name: one.value for name, one in summary.metrics.items()}
    # dog in a is right, dog in b wrong; glass and person are denied, the rest rightly
    assert value["accuracy"] == pytest.approx(100 * 4 / 7)
    assert (value["precision"], value["recall"]) == (pytest.approx(50), pytest.approx(100 / 3))
    assert value["yes_ratio"] == pytest.approx(200 / 7)
    assert benchmark.asked("b.png/cat").text == "Is there a cat in the image?"
    with pytest.raises(InputError, match="parser"):
        opened(tmp_path, "objects-questions", parser="mine")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([1], "object"),
        ({"image": "d.png"}, "objects"),
        ({"objects": []}, "image"),
        ({"image": "d.png", "objects": ["dog"], "object": []}, "unknown field 'object'"),
        ({"image": "d.png", "objects": "dog"}, "list"),
        ({"image": "d.png", "objects": [""]}, "list"),
        ({"image": "d.png", "objects": ["dog"], "absent": ["Dog"]}, "both"),
        ({"image": "d.png", "objects": [], "synonyms": ["dog"]}, "synonyms"),
        ({"image": "d.png", "objects": [], "synonyms": {"cat": ["puppy"]}}, "also a word for"),
        ({"image": "d.png", "objects": [], "synonyms": {"cat": ["dog"]}}, "also a word for"),
        ({"image": "a.png", "objects": []}, "second time"),
    ],
)
def test_a_wrong_line_is_named(row, words, tmp_path):
    with pytest.raises(InputError, match=words) as caught:
        Truth(written(tmp_path, [*ROWS, row]))
    assert "line 4" in str(caught.value)


def test_wrong_files_and_missing_pictures_are_named(tmp_path):
    path = tmp_path / "truth.jsonl"
    for text, words in (
        ("", "no picture"),
        ('{"image": "a.png", "objects": []}', "no object"),
        ('{"image": ', "line 1, is not valid JSON"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            Truth(path)
    with pytest.raises(InputError, match="cannot be read"):
        open_benchmark("objects", truth=tmp_path / "no.jsonl").records()
    benchmark = opened(tmp_path)
    (tmp_path / "b.png").unlink()
    with pytest.raises(InputError, match=r"b\.png of"):
        benchmark.records()
    benchmark.score([Response("b.png", "a dog")])  # scoring needs no pictures


def run(*words) -> None:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output + str(done.exception)


def test_both_run_from_the_command_line_on_drawn_scenes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("world", "draw", "-o", "own", "--count", "2", "--split", "evaluation", "--boxes")
    for name, limit in (("objects", 2), ("objects-questions", 3)):
        options = ["--option", "images=own", "--option", "truth=own/truth.jsonl", "--limit", limit]
        run("eval", "run", "world", "-b", name, *options, "--decoder", "base", "-o", f"runs/{name}")
        run("eval", "score", f"runs/{name}")
        results = read_json(Path("runs") / name / "results.json")
        metric = "chair_i" if name == "objects" else "accuracy"
        assert metric in json.dumps(results)
