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
from reweigh.lab.runs.task import open_task
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


def test_lines_are_kept_for_tuning_and_a_file_without_splits_is_used_whole(tmp_path):
    rows = [{**ROWS[0], "split": "tuning"}, ROWS[1], {**ROWS[2], "split": "evaluation"}]
    asked = {
        split: [record.id for record in opened_rows(tmp_path, rows, split=split).records()]
        for split in SPLITS
    }
    assert asked == {"evaluation": ["b.png", "c.png"], "tuning": ["a.png"]}
    assert opened_rows(tmp_path, rows).describe([])["vocabulary"] == ["cat", "dog", "person", "wine glass"]
    whole = [record.id for record in opened_rows(tmp_path, ROWS, split="tuning").records()]
    assert whole == ["a.png", "b.png", "c.png"]
    with pytest.raises(InputError, match=r"no line of .* has the split tuning"):
        opened_rows(tmp_path, [{**ROWS[0], "split": "evaluation"}], split="tuning").records()
    with pytest.raises(InputError, match="line 1, has the unknown split 'test'"):
        opened_rows(tmp_path, [{**ROWS[0], "split": "test"}]).records()


SPLITS = ("evaluation", "tuning")


def opened_rows(folder: Path, rows, **options):
    return open_benchmark("objects", images=folder, truth=written(folder, rows), **options)


def test_a_vocabulary_adds_objects_that_no_line_names(tmp_path):
    (tmp_path / "more.txt").write_text("train, locomotive\ntraffic light\n")
    text = "A dog looks at two trains and a traffic light. The locomotive is red."
    few, more = opened(tmp_path), opened(tmp_path, vocabulary=tmp_path / "more.txt")
    assert few.objects(text) == ["dog"]
    assert more.objects(text) == ["dog", "train", "traffic light", "train"]
    [said] = few.remarks([text, "The train stands in the background."])
    start = "The vocabulary has 4 objects. The most frequent other nouns, which are not counted: "
    assert said.startswith(start)
    assert said.removeprefix(start).split(". ")[0] == "light (1), locomotive (1), train (1), trains (1)"
    assert "dog" not in said.partition("counted:")[2]
    assert more.remarks([text]) == ["The vocabulary has 6 objects."]


def test_pictures_without_a_line_and_unread_formats_are_counted_and_named(tmp_path):
    benchmark = opened(tmp_path)
    for number in range(7):
        Image.new("RGB", (8, 8)).save(tmp_path / f"more-{number}.jpg")
    (tmp_path / "phone.heic").write_bytes(b"?")
    (tmp_path / "web.AVIF").write_bytes(b"?")
    _, unnamed, unread = benchmark.remarks([])
    assert unnamed.startswith(
        f"7 of 10 pictures in {tmp_path} have no line in truth.jsonl and are not used: more-0.jpg, "
    )
    assert unnamed.endswith("more-4.jpg and 2 more.")
    assert "2 pictures" in unread
    assert "phone.heic, web.AVIF" in unread


def test_pictures_that_were_tuned_on_are_not_evaluated_on(tmp_path):
    """A copy under another name is the same picture."""
    for number, name in enumerate(("a.png", "b.png", "copy.png")):
        Image.new("RGB", (8, 8), (number % 2, 0, 0)).save(tmp_path / name)

    def task(*names):
        path = tmp_path / f"{'-'.join(names)}.jsonl"
        path.write_text("".join(json.dumps({"image": name, "objects": ["dog"]}) + "\n" for name in names))
        return open_task("objects", images=tmp_path, options={"truth": str(path), "images": str(tmp_path)})

    tuning = task("a.png").pictures()
    task("b.png").require_apart(tuning, "the point was chosen on")
    with pytest.raises(InputError, match=r"1 of 2 records of objects .* 'copy.png' \(there 'a.png'\)"):
        task("b.png", "copy.png").require_apart(tuning, "the point was chosen on")
