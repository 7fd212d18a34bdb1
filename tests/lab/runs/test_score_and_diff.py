from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from answering import answer, toy_runs
from checkpoints.tokens import tokenizer
from reweigh.cli.app import app
from reweigh.engines.answer import Answer, decode
from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.files.artifacts import append_jsonl, write_json
from reweigh.files.seals import SEAL, read_sealed, write_sealed
from reweigh.lab.runs.diff import compare, hallucinated
from reweigh.lab.runs.results import Scored, read_scored
from reweigh.lab.runs.score import as_results, read_sources, score
from reweigh.lab.runs.task import Runs
from reweigh.lab.tasks.base import BENCHMARKS, Response, Summary, find_benchmark
from reweigh.lab.views.evaluation import comparison_page, difference_table, evaluation_page, mention_table
from reweigh.text import split_thinking
from toy_benchmark import TRUTH, Toy

if "toy" not in BENCHMARKS:
    BENCHMARKS.add("toy", Toy)

WORDS = st.lists(st.sampled_from(["dog", "cat", "bus", "and"]), max_size=6)
RUN = st.lists(WORDS, min_size=12, max_size=12)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return toy_runs(tmp_path / "images").task.images


def make_run(folder: Path, images: Path, texts: list[str], shard: str = "1/1", **decoding: Any) -> Path:
    """Answer each record with the text of its place, one per batch; ``shard`` answers a part of them."""
    runs = toy_runs(images, batch_size=1)
    about = {**runs.task.metadata, "options": {"loud": True}}
    places = {**runs.task.folders, "gone": "/no/such/place"}
    runs = Runs(replace(runs.task, metadata=about, folders=places), {"id": "org/model-7b"})
    answer(runs, lambda batch: [Answer(texts[batch.start])], folder, decoding, shard=shard)
    return folder


BASE = ["a dog and a bus and a bus"] * 6 + ["a cat"] * 6
EDITED = ["a dog"] * 6 + ["a cat and a bus <b>"] * 6


def test_scoring_a_run_folder_writes_all(tmp_path: Path, images: Path) -> None:
    folder = make_run(tmp_path / "run", images, BASE)
    done = CliRunner().invoke(app, ["eval", "score", str(folder)])
    assert done.exit_code == 0, done.output
    assert "CHAIR_S" in done.stdout
    assert "3 repl" in done.stderr
    results = json.loads((folder / "results.json").read_text())
    flat = results["results"]["toy"]
    # Six captions with two buses each; of the six with a cat, three are on images without one.
    assert flat["chair_s,none"] == pytest.approx(100 * 9 / 12)
    assert flat["chair_i,none"] == pytest.approx(100 * 15 / 24)
    assert flat["chair_s_low,none"] <= flat["chair_s,none"] <= flat["chair_s_high,none"]
    assert results["n-samples"]["toy"] == {"original": 12, "effective": 12}
    assert results["higher_is_better"]["toy"]["chair_s"] is False
    assert results["higher_is_better"]["toy"]["length"] is None
    assert results["configs"]["toy"]["scorer"]["loud"] is True
    assert results["config"]["model"] == {"id": "org/model-7b"}
    page = (folder / "report.html").read_text()
    assert "model-7b, base" in page
    assert page.count("data:image/jpeg;base64,") == 12
    assert '<span class="hallucinated" title="bus">bus</span>' in page
    assert '<span class="grounded" title="dog">dog</span>' in page
    again = CliRunner().invoke(app, ["eval", "score", str(folder), "--data", str(images), "--json"])
    assert json.loads(again.stdout) == {key: value for key, value in results.items() if key != SEAL}
    assert (folder / "report.html").read_text() == page


def test_shards_merge_to_the_whole(tmp_path: Path, images: Path) -> None:
    whole = make_run(tmp_path / "whole", images, BASE)
    parts = [make_run(tmp_path / f"part{i}", images, BASE, shard=f"{i}/3") for i in (1, 2, 3)]
    _, expected = score(Toy(images), read_sources([whole]))
    _, merged = score(Toy(images), read_sources(parts))
    assert merged == expected
    assert score(Toy(images), read_sources(parts[::-1]))[1] == expected
    with pytest.raises(MismatchError, match="beta"):
        read_sources([whole, make_run(tmp_path / "other", images, BASE, beta=2)])
    done = CliRunner().invoke(
        app, ["eval", "score", *map(str, parts), "--data", str(images), "--out", str(tmp_path / "merged")]
    )
    assert done.exit_code == 0, done.output
    assert read_scored(tmp_path / "merged").summary.benchmark == "toy"


def test_an_unfinished_run_is_scored_only_if_asked(tmp_path: Path, images: Path) -> None:
    folder = make_run(tmp_path / "run", images, BASE)
    lines = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    (folder / "rows.jsonl").write_text("".join(lines[:7]) + lines[7][:9])
    (folder / "manifest.json").unlink()
    failed = CliRunner().invoke(app, ["eval", "score", str(folder), "--data", str(images)])
    assert isinstance(failed.exception, InputError)
    assert "5 of 12" in str(failed.exception)
    done = CliRunner().invoke(
        app, ["eval", "score", str(folder), "--data", str(images), "--allow-missing", "--json"]
    )
    assert json.loads(done.stdout)["n-samples"]["toy"] == {"original": 12, "effective": 7}
    assert len(read_scored(folder).texts) == 7  # the line that a kill cut short does not count here either


@pytest.mark.parametrize("name", ["record.json", "rows.jsonl", "items.jsonl", "results.json"])
def test_an_edited_file_of_a_scored_run_is_named(tmp_path: Path, images: Path, name: str) -> None:
    folder = make_run(tmp_path / "run", images, BASE)
    assert CliRunner().invoke(app, ["eval", "score", str(folder)]).exit_code == 0
    assert read_scored(folder).summary.benchmark == "toy"
    data = (folder / name).read_bytes()
    for at in range(3, len(data), max(1, len(data) // 40)):
        (folder / name).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ArtifactError, match=name):
            read_scored(folder)


def test_an_edited_answer_is_not_scored(tmp_path: Path, images: Path) -> None:
    folder = make_run(tmp_path / "run", images, BASE)
    text = (folder / "rows.jsonl").read_text()
    (folder / "rows.jsonl").write_text(text.replace("a bus and a bus", "a dog and a dog"))
    with pytest.raises(ArtifactError, match=r"rows\.jsonl"):
        read_sources([folder])


def test_a_copy_of_responses_is_verified_too_and_may_be_scored_again(tmp_path: Path, images: Path) -> None:
    append_jsonl(tmp_path / "said.jsonl", [{"id": i, "response": "a dog"} for i in range(12)])
    command = ["eval", "score", str(tmp_path / "said.jsonl"), "-b", "toy", "--data", str(images)]
    out = tmp_path / "out"
    for _ in range(2):
        done = CliRunner().invoke(app, [*command, "--out", str(out)])
        assert done.exit_code == 0, done.output
    (out / "responses.jsonl").write_text('{"id": 0, "response": "edited"}\n')
    with pytest.raises(ArtifactError, match=r"responses\.jsonl"):
        read_scored(out)
    failed = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert isinstance(failed.exception, InputError)
    assert "replace" in str(failed.exception)


@pytest.mark.parametrize("name", ["responses.jsonl", "items.jsonl", "results.json"])
def test_scoring_replaces_nothing_that_it_did_not_write(tmp_path: Path, images: Path, name: str) -> None:
    append_jsonl(tmp_path / "said.jsonl", [{"id": i, "response": "a dog"} for i in range(12)])
    mine = tmp_path / "out" / name
    mine.parent.mkdir()
    mine.write_text('{"id": 0, "response": "mine", "note": "keep"}\n')
    command = ["eval", "score", str(tmp_path / "said.jsonl"), "-b", "toy", "--data", str(images)]
    failed = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out")])
    assert isinstance(failed.exception, InputError)
    assert "keep" in mine.read_text()


def test_results_sealed_by_hand_without_their_parts_are_refused(tmp_path: Path, images: Path) -> None:
    folder = make_run(tmp_path / "run", images, BASE)
    assert CliRunner().invoke(app, ["eval", "score", str(folder)]).exit_code == 0
    page = read_sealed(folder / "results.json")
    for lacking in ("summary", "config", "files"):
        write_sealed(folder / "results.json", {key: value for key, value in page.items() if key != lacking})
        with pytest.raises(ArtifactError, match=f"'{lacking}'"):
            read_scored(folder)


def test_a_run_without_answers_says_so(tmp_path: Path, images: Path) -> None:
    folder = make_run(tmp_path / "run", images, BASE)
    (folder / "rows.jsonl").unlink()
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match="answers"):
        read_sources([folder])


def test_a_bare_response_file_needs_a_name_and_a_place(tmp_path: Path) -> None:
    append_jsonl(tmp_path / "mine.jsonl", [{"image_id": 0, "caption": "a dog"}])
    run = CliRunner().invoke
    for arguments, said in (
        ([], "no folder for the results"),
        (["--out", str(tmp_path / "out")], "benchmark is not known"),
        (["--out", str(tmp_path / "out"), "-b", "toy", "--option", "quiet=1"], "toy has no option 'quiet'"),
        (["--out", str(tmp_path / "out"), "-b", "toy", "--option", "quiet"], "not of the form name=value"),
        (["--out", str(tmp_path / "out"), "-b", "toi"], "did you mean toy"),
    ):
        failed = run(app, ["eval", "score", str(tmp_path / "mine.jsonl"), *arguments])
        assert said in str(failed.exception)
    done = run(
        app,
        [
            "eval",
            "score",
            str(tmp_path / "mine.jsonl"),
            "--out",
            str(tmp_path / "out"),
            "-b",
            "toy",
            "--allow-missing",
            "--json",
        ],
    )
    assert json.loads(done.stdout)["results"]["toy"]["chair_s,none"] == 0
    assert read_scored(tmp_path / "out").texts == {0: "a dog"}
    with pytest.raises(InputError, match="together"):
        read_sources([tmp_path / "out", tmp_path / "mine.jsonl"])


def test_scoring_again_replaces_what_was_there(tmp_path: Path, images: Path) -> None:
    out = tmp_path / "out"
    for said in ("a bus", "a dog"):
        (tmp_path / "said.jsonl").write_text(json.dumps({"id": 0, "response": said}) + "\n")
        CliRunner().invoke(
            app,
            [
                "eval",
                "score",
                str(tmp_path / "said.jsonl"),
                "-b",
                "toy",
                "--out",
                str(out),
                "--allow-missing",
            ],
        )
    assert read_scored(out).texts == {0: "a dog"}
    assert len(read_scored(out).items) == 1
    run = make_run(tmp_path / "run", images, BASE)
    failed = CliRunner().invoke(
        app, ["eval", "score", str(tmp_path / "said.jsonl"), "-b", "toy", "--out", str(run)]
    )
    assert "another" in str(failed.exception)


def test_odd_and_huge_responses_are_scored(tmp_path: Path) -> None:
    huge = "a dog and a bus " * 60_000
    rows = [{"id": 0, "response": "a dog \ud83d <b>"}, {"id": 1, "response": huge}, {"id": 2, "response": ""}]
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = CliRunner().invoke(
        app,
        [
            "eval",
            "score",
            str(tmp_path / "odd.jsonl"),
            "-b",
            "toy",
            "--out",
            str(tmp_path / "out"),
            "--json",
            "--allow-missing",
        ],
    )
    assert done.exit_code == 0, str(done.exception)
    assert json.loads(done.stdout)["results"]["toy"]["mentions,none"] == pytest.approx(120_001 / 3)
    assert read_scored(tmp_path / "out").texts[0] == "a dog ? <b>"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "(954,000 more characters)" in page
    assert len(page) < 200_000


def test_a_file_that_does_not_answer_everything_is_scored_only_if_asked(tmp_path: Path) -> None:
    append_jsonl(tmp_path / "said.jsonl", [{"id": i, "response": "a dog"} for i in range(9)])
    command = ["eval", "score", str(tmp_path / "said.jsonl"), "-b", "toy", "--out", str(tmp_path / "out")]
    failed = CliRunner().invoke(app, command)
    assert isinstance(failed.exception, InputError)
    assert "3 of 12" in str(failed.exception)
    assert "--allow-missing" in str(failed.exception)
    done = CliRunner().invoke(app, [*command, "--allow-missing", "--json"])
    assert json.loads(done.stdout)["n-samples"]["toy"] == {"original": 12, "effective": 9}
    assert "9 of 12" in done.stderr


def test_the_samples_of_shards_are_those_of_all_of_them(tmp_path: Path, images: Path) -> None:
    parts = [make_run(tmp_path / f"part{i}", images, BASE, shard=f"{i}/3") for i in (1, 2, 3)]
    command = [
        "eval",
        "score",
        *map(str, parts),
        "--data",
        str(images),
        "--out",
        str(tmp_path / "all"),
        "--json",
    ]
    done = CliRunner().invoke(app, command)
    assert json.loads(done.stdout)["n-samples"]["toy"] == {"original": 12, "effective": 12}


def test_parts_without_the_others_are_scored_only_if_asked_and_say_so(tmp_path: Path, images: Path) -> None:
    parts = [make_run(tmp_path / f"part{i}", images, BASE, shard=f"{i}/3") for i in (1, 2, 3)]

    def score_parts(*some: Path) -> tuple[str, str]:
        out = tmp_path / f"scored-{len(some)}"
        command = ["eval", "score", *map(str, some), "--data", str(images), "--out", str(out)]
        if len(some) < 3:
            failed = CliRunner().invoke(app, command)
            assert f"{12 - 4 * len(some)} of 12 records" in str(failed.exception)
            command.append("--allow-missing")
        shown = " ".join(CliRunner().invoke(app, command).stdout.split())
        return shown, (out / "report.html").read_text()

    for told in score_parts(parts[1]):
        assert "part of 12 records only: 4 responses" in told
    for told in score_parts(*parts[1:]):
        assert "part of 12 records only: 8 responses" in told
    for told in score_parts(*parts):
        assert "only" not in told
        assert "12 responses" in told


def test_an_empty_file_is_a_defined_result(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("")
    done = CliRunner().invoke(
        app,
        [
            "eval",
            "score",
            str(tmp_path / "none.jsonl"),
            "-b",
            "toy",
            "--out",
            str(tmp_path / "out"),
            "--allow-missing",
        ],
    )
    assert done.exit_code == 0, done.output
    assert "0 of 12" in done.stderr
    assert "There are no responses." in (tmp_path / "out" / "report.html").read_text()


@settings(max_examples=12)
@given(RUN, RUN)
def test_removed_introduced_and_kept_against_a_twin(one: list[list[str]], two: list[list[str]]) -> None:
    bench = Toy(".")
    (first, before), (second, after) = (
        bench.score([Response(i, " ".join(words)) for i, words in enumerate(run)]) for run in (one, two)
    )
    found = compare(Scored(first, before), Scored(second[::-1], after))
    removed = introduced = kept = 0
    for i, truth in TRUTH.items():
        for word in ("dog", "cat", "bus"):
            if word not in truth:
                had, has = one[i].count(word), two[i].count(word)
                removed += max(0, had - has)
                introduced += max(0, has - had)
                kept += min(had, has)
    totals = {name: metric.value for name, metric in found.mentions.items()}
    assert totals == {"removed": removed, "introduced": introduced, "kept": kept, "net": removed - introduced}
    swapped = compare(Scored(second, after), Scored(first, before))
    assert swapped.mentions["net"].value == introduced - removed
    for name, metric in found.figures.items():
        old, new = before.metrics[name].value, after.metrics[name].value
        if old is not None and new is not None:
            assert metric.value == pytest.approx(new - old)
    comparison_page(found).html()
    assert len(json.dumps(found.to_json())) > 0


def test_a_run_against_itself_is_all_zero() -> None:
    items, summary = Toy(".").score([Response(i, "a bus") for i in TRUTH])
    found = compare(Scored(items, summary), Scored(items, summary))
    assert found.figures["chair_s"].value == 0
    assert (found.figures["chair_s"].low, found.figures["chair_s"].high) == (0, 0)
    assert found.mentions["kept"].value == 12
    assert hallucinated(items[0]) == Counter(bus=1)


def test_the_diff_command(tmp_path: Path, images: Path) -> None:
    run = CliRunner().invoke
    folders = [make_run(tmp_path / "base", images, BASE), make_run(tmp_path / "edited", images, EDITED)]
    unscored = run(app, ["eval", "diff", *map(str, folders)])
    assert f"eval score {folders[0]}" in str(unscored.exception)
    for folder in folders:
        assert run(app, ["eval", "score", str(folder), "--data", str(images)]).exit_code == 0
    shown = run(app, ["eval", "diff", *map(str, folders)])
    assert shown.exit_code == 0, shown.output
    assert "removed" in shown.stdout
    told = json.loads(run(app, ["eval", "diff", *map(str, folders), "--json"]).stdout)
    assert told["mentions"]["removed"]["value"] == 12
    assert told["mentions"]["introduced"]["value"] == 6
    assert told["mentions"]["net"]["value"] == 6
    assert told["mentions"]["kept"]["value"] == 3
    assert told["items"][0]["removed"] == {"bus": 2}
    page = tmp_path / "diff.html"
    done = run(app, ["eval", "diff", *map(str, folders), "--out", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "removed: bus ×2" in text
    assert "&lt;b&gt;" in text
    assert text.count("data:image/jpeg") == 12, "the record of a run says where its pictures are"


def test_runs_of_different_records_are_not_compared(tmp_path: Path) -> None:
    bench = Toy(".")
    (first, one), (second, two) = (
        bench.score([Response(i, "a dog") for i in part]) for part in ([1, 2], [2, 3])
    )
    with pytest.raises(InputError, match="items"):
        compare(Scored(first, one), Scored(second, two))


def test_verdicts_follow_the_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reweigh.lab.enough.RECORDS", 12)
    monkeypatch.setattr("reweigh.lab.enough.EVENTS", 0)
    bench = Toy(".")
    first, one = bench.score([Response(i, "a bus") for i in TRUTH])
    second, two = bench.score([Response(i, "a dog") for i in TRUTH])
    table = difference_table(compare(Scored(first, one), Scored(second, two)))
    verdicts = {str(row[0]): row[-1] for row in table.rows}
    assert verdicts["CHAIR_S"] == "better"
    back = difference_table(compare(Scored(second, two), Scored(first, one)))
    assert {str(row[0]): row[-1] for row in back.rows}["CHAIR_S"] == "worse"
    same = compare(Scored(first, one), Scored(first, one))
    assert {str(row[0]): row[-1] for row in difference_table(same).rows}["CHAIR_S"] == "within chance"
    monkeypatch.setattr("reweigh.lab.enough.RECORDS", 13)
    few = difference_table(compare(Scored(first, one), Scored(second, two)))
    assert {str(row[0]): row[-1] for row in few.rows}["CHAIR_S"] == "too few"
    assert "12 records are too few, 13 are needed to claim a difference" in few.markdown()
    mentions = mention_table(same)
    assert mentions is not None
    assert "12" in mentions.markdown()
    assert "| as many" in mentions.markdown()


def test_wrong_answers_are_put_right_or_made(tmp_path: Path) -> None:
    rows = [{"question_id": i, "image": "a.jpg", "text": "A dog?", "label": "yes"} for i in range(4)]
    append_jsonl(tmp_path / "coco_pope_random.json", rows)
    bench = BENCHMARKS["pope"](tmp_path, split="random")  # type: ignore[call-arg]
    (first, one), (second, two) = (
        bench.score([Response(i, said) for i, said in enumerate(run)])
        for run in (["Yes", "No", "No", "No"], ["No", "Yes", "Yes", "No"])
    )
    found = compare(Scored(first, one), Scored(second, two))
    totals = {name: metric.value for name, metric in found.mentions.items()}
    assert totals == {"removed": 2, "introduced": 1, "kept": 1, "net": 1}
    table = mention_table(found)
    assert table is not None
    assert "wrong answers" in table.markdown()
    assert "| 1 fewer" in table.markdown()
    back = mention_table(compare(Scored(second, two), Scored(first, one)))
    assert back is not None
    assert "| 1 more" in back.markdown()


def test_directions() -> None:
    expected = {
        ("chair", "chair_s"): "lower",
        ("amber-generative", "chair"): "lower",
        ("amber-generative", "cover"): "higher",
        ("amber-discriminative", "existence_f1"): "higher",
        ("mmhal", "score_attribute"): "higher",
        ("pope", "random_accuracy"): "higher",
        ("mmhal", "hallucination_rate"): "lower",
        ("mmvet", "unparsed"): "lower",
        ("mmvet", "ocr"): "higher",
        ("mmvet", "exactly_rec+ocr"): "higher",
        ("chair", "length"): None,
        ("pope", "yes_ratio"): None,
        ("pope", "random_yes_ratio"): None,
        ("world", "mentions"): None,
    }
    found = {(name, metric): find_benchmark(name).metric_info(metric).direction for name, metric in expected}
    assert found == expected


def test_results_survive_json(tmp_path: Path) -> None:
    _, summary = Toy(".").score([Response(0, "nothing")])
    results = as_results(summary, None, benchmark=Toy)
    write_json(tmp_path / "results.json", results)
    assert Summary.from_json(json.loads((tmp_path / "results.json").read_text())["summary"]) == summary
    assert summary.metrics["chair_i"].value is None
    assert "no caption mentions an object" in evaluation_page(Scored([], summary, results=results)).html()


def test_scoring_needs_no_torch(tmp_path: Path) -> None:
    rows = [{"question_id": 1, "image": "a.jpg", "text": "Is there a dog?", "label": "yes"}]
    for split in ("random", "popular", "adversarial"):
        append_jsonl(tmp_path / f"coco_pope_{split}.json", rows)
    said = [{"id": f"{split}/1", "response": "Yes"} for split in ("random", "popular", "adversarial")]
    append_jsonl(tmp_path / "said.jsonl", said)
    code = (
        "import sys\n"
        "from reweigh.cli.app import app\n"
        f"app(['eval', 'score', {str(tmp_path / 'said.jsonl')!r}, '-b', 'pope', '--data', {str(tmp_path)!r},"
        f" '--out', {str(tmp_path / 'out')!r}], standalone_mode=False)\n"
        "heavy = {'torch', 'transformers', 'nltk', 'httpx'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "heavy: []" in done.stdout
    assert (tmp_path / "out" / "report.html").is_file()


def flat_of(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return results


def test_what_a_model_thinks_is_not_scored_but_apart(tmp_path: Path, images: Path) -> None:
    thoughts = ["<think>a bus? a bus? no, wait.</think> a dog", "a bus perhaps</think>a dog", "a dog"]
    plain = make_run(tmp_path / "plain", images, ["a dog"] * 12)
    thought = make_run(tmp_path / "thought", images, thoughts * 4)
    for folder in (plain, thought):
        assert CliRunner().invoke(app, ["eval", "score", str(folder)]).exit_code == 0
    assert flat_of(thought)["results"] == flat_of(plain)["results"]
    assert read_scored(thought).texts == read_scored(plain).texts == dict.fromkeys(TRUTH, "a dog")
    page = (thought / "report.html").read_text()
    assert '<span class="grounded" title="dog">dog</span>' in page  # marked where the answer has it
    assert "bus" not in page
    assert "<think>" in (thought / "rows.jsonl").read_text()  # the whole answer is kept

    command = ["eval", "score", str(thought), "--thinking"]
    refused = CliRunner().invoke(app, command)
    assert "folder of their own" in str(refused.exception)
    assert CliRunner().invoke(app, [*command, "-o", str(plain)]).exit_code == 1
    done = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "apart")])
    assert done.exit_code == 0, done.output
    apart = flat_of(tmp_path / "apart")
    assert apart["part"] == "thinking"
    assert apart["results"]["toy"]["chair_i,none"] == 100.0
    none = CliRunner().invoke(app, ["eval", "score", str(plain), "--thinking", "-o", str(tmp_path / "none")])
    assert "no response has a thinking part" in str(none.exception)


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("A dog.", "", "A dog."),
        ("  A dog. ", "", "  A dog. "),
        ("<think>\nCats?\n</think>\n\nA dog.", "Cats?", "A dog."),
        ("Cats?</think> A dog.", "Cats?", "A dog."),
        ("<think>never ends", "never ends", ""),
        ("<think></think>A dog.", "", "A dog."),
        ("Well. <think>one</think>A <thinking>two</thinking>dog.", "one\ntwo", "Well. A dog."),
        ("<|channel>thought\nCats?<channel|>A dog.", "Cats?", "A dog."),
    ],
)
def test_thinking_is_split_from_the_answer(text: str, thought: str, answer: str) -> None:
    assert split_thinking(text) == (thought, answer)
    assert split_thinking(answer) == ("", answer)


def test_marks_of_thinking_are_kept_where_a_tokenizer_counts_them_special() -> None:
    made = tokenizer(["<s>", "</s>", "<|channel>", "<channel|>"], bos="<s>", eos="</s>", pad="</s>")
    ids = made("<|channel>thought A cat?<channel|> A dog sleeps.</s>", add_special_tokens=False)["input_ids"]
    plain = made("A dog sleeps.</s>", add_special_tokens=False)["input_ids"]
    made.add_special_tokens({"additional_special_tokens": ["<|channel>", "<channel|>"]})
    assert decode(made, plain) == "A dog sleeps."
    assert split_thinking(decode(made, ids)) == ("A cat?", "A dog sleeps.")
