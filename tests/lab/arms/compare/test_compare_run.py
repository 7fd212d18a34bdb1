"""The command from end to end on a random model and the embedded world, stopped and resumed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import reweigh
import reweigh.rivals
import twin
from checkpoints import VOCABULARY, load
from reweigh.cli.app import app
from reweigh.engines.answer import Answer
from reweigh.engines.transformers.answers import read_answers
from reweigh.errors import InputError, UnknownNameError, UnsupportedError
from reweigh.lab.arms.compare.cost import Cost, Total, memory_of
from reweigh.lab.arms.compare.methods import (
    CONTROLS,
    make_method,
    parse_methods,
    parse_options,
    standard_methods,
)
from reweigh.lab.arms.compare.run import _note
from reweigh.lab.estimate import Estimate
from reweigh.lab.runs.diff import hallucinated_objects
from reweigh.lab.runs.results import read_scored
from reweigh.lab.study import Arm, Batch
from reweigh.lab.tasks.base import Record
from reweigh.rivals import DECODERS
from reweigh.rivals.tools.vectors import SteeringVectors


def test_methods_begin_with_the_base_once():
    known = ["base", "greedy", "vcd", "dola"]
    assert parse_methods("vcd, dola,vcd", known) == ["base", "vcd", "dola"]
    assert parse_methods("greedy,vcd,base", known) == ["base", "vcd"]
    with pytest.raises(UnknownNameError, match="did you mean dola"):
        parse_methods("dolla", known)
    for nothing in ("", " , "):
        with pytest.raises(InputError, match="named"):
            parse_methods(nothing, known)


def test_a_variant_is_a_method_with_a_label():
    known = ["base", "greedy", "vcd"]
    assert parse_methods("vcd,vcd@half", known) == ["base", "vcd", "vcd@half"]
    assert parse_options(["vcd@half.alpha=0.5"], ["vcd", "vcd@half"]) == {
        "vcd": {},
        "vcd@half": {"alpha": 0.5},
    }
    for wrong in ("vcd@", "vcd@a/b", "vcd@-", "base@x", "vcd@a@b"):
        with pytest.raises(InputError, match="variant"):
            parse_methods(wrong, known)
    with pytest.raises(UnknownNameError, match="did you mean vcd"):
        parse_methods("vcdd@half", known)


def test_yes_no_questions_bring_their_controls():
    plain = standard_methods(["chair", "world"])
    for asked in ("pope", "amber-discriminative", "objects-questions"):
        found = standard_methods(["chair", asked])
        assert [name for name in found if name not in plain] == ["push@yes", "push@no"]
        assert (found["push@yes"], found["push@no"]) == ({"answer": "yes"}, {"answer": "no"})
    assert "cut" in plain
    for name, options in standard_methods(["pope"]).items():
        assert not options or name.startswith("push@")
    assert all("control" in DECODERS[name].title for name in CONTROLS)


def test_options_belong_to_a_method():
    found = parse_options(["vcd.alpha=0.5", "dola.layers=[1, 2]", "dola.norm=true"], ["base", "vcd", "dola"])
    assert found == {"base": {}, "vcd": {"alpha": 0.5}, "dola": {"layers": [1, 2], "norm": True}}
    assert parse_options(["dola.layers=high"], ["dola"]) == {"dola": {"layers": "high"}}
    with pytest.raises(InputError, match=r"method\.option=value"):
        parse_options(["alpha=1"], ["vcd"])
    with pytest.raises(InputError, match="compared"):
        parse_options(["pai.alpha=1"], ["vcd"])


def cost(seconds, tokens, peak):
    return {"seconds": seconds, "tokens": tokens, "peak": peak}


def test_cost_is_time_over_tokens_and_the_highest_peak():
    found = Total({("b", 0): cost(1.0, 10, 5), ("b", 1): cost(3.0, 30, 9), ("b", 2): cost(0.0, 0, None)})
    assert (found.seconds_per_token, found.peak) == (0.1, 9)
    assert Total({}).seconds_per_token is None
    assert Total({}).latency_over(Total({})).value is None
    assert Total({}).latency_over(found).value is None, "a method that was not run has no cost"


def test_tokens_are_counted_to_the_end_token():
    class Processor:
        def decode(self, row, skip_special_tokens):
            return " ".join(map(str, row))

    def count(said, ends):
        inputs = {"input_ids": torch.ones(len(said), 3, dtype=torch.int64)}
        output = torch.cat([inputs["input_ids"], torch.tensor(said)], dim=1)
        return sum(len(answer.tokens) for answer in read_answers(Processor(), output, inputs, ends))

    assert count([[5, 6, 2, 0, 0], [5, 6, 7, 8, 9]], [2]) == 8
    assert count([[5, 6, 2, 0, 0], [5, 7, 7, 8, 9]], [9, 6]) == 7


def test_a_method_the_model_cannot_serve_leaves_its_reason(monkeypatch):
    def refuse(name, model, processor, **options):
        raise UnsupportedError("its attention cannot be read", hint="use another")

    monkeypatch.setattr(reweigh.rivals, "decoder", refuse)
    method = make_method("pai", object(), None, {"alpha": 0.1})
    assert method.session is None
    assert method.reason == "its attention cannot be read"


def test_each_method_answers_in_its_own_regime(checkpoint):
    from checkpoints import picture

    model, processor = load(checkpoint("llava"))
    record = Record(id=1, image="x.png", prompt="What is it?", max_new_tokens=6)
    batch = Batch(start=0, records=[record], pictures=[picture(1)], seed=5)
    regimes = {}
    for name in ("base", "vcd", "beam", "dola"):
        method = make_method(name, model, processor, {})
        ask = method.arm().opened(None).ask
        found, again = ask(batch), ask(batch)
        assert found.answers == again.answers, "the seed fixes what is drawn"
        assert 1 <= found.note["tokens"] <= 6
        assert found.note["seconds"] > 0
        regimes[name] = method.regime_in_words()
    assert regimes == {
        "base": "greedy",
        "vcd": "sampling",
        "beam": "5 beams",
        "dola": "greedy, repetition penalty 1.2",
    }


def test_one_regime_for_all_replaces_that_of_the_authors(checkpoint):
    model, processor = load(checkpoint("llava"))

    def words(name, **options):
        method = make_method(name, model, processor, options)
        assert "regime" not in method.decoding["options"], "it is no option of the decoder"
        return method.regime_in_words(), method.decoding["generation"]

    assert words("vcd", regime="own")[0] == "sampling"
    said, recorded = words("vcd", regime="greedy")
    assert said == "greedy"
    assert recorded == {"do_sample": False, "num_beams": 1}, (
        "a run of another regime is refused in its folder"
    )
    assert words("dola", regime="greedy")[0] == "greedy, repetition penalty 1.2", "its own option"
    assert words("pai", regime="sampling")[0] == "sampling"
    assert words("beam", regime="greedy")[0] == "5 beams", "a baseline is its regime"
    with pytest.raises(UnknownNameError, match="did you mean greedy"):
        make_method("vcd", model, processor, {"regime": "greed"})


class Recorder:
    """A session that notes what it is asked."""

    model = SimpleNamespace(device=torch.device("cpu"))
    decoder = SimpleNamespace(decoding=dict)

    def __init__(self):
        self.asked = []

    def record(self):
        return {}

    def prepare(self, pictures, prompts, *, template=None):
        return {"pictures": [picture.tobytes() for picture in pictures]}

    def respond(self, inputs, *, seed, max_new_tokens):
        self.asked.append((inputs["pictures"], max_new_tokens, seed))
        return [Answer("x", (1, 2))]


def asking(session):
    """Answer batches with a session whose cost is noted."""
    return Arm("made", lambda _: session, "", [Cost()]).opened(None).ask


def test_a_method_is_warmed_up_once_before_it_is_timed():
    picture = Image.new("L", (2, 1))
    picture.putdata([10, 20])
    session, record = Recorder(), Record(id=1, image="x.png", prompt="What?", max_new_tokens=90)
    ask = asking(session)
    costs = [ask(Batch(start=start, records=[record], pictures=[picture], seed=5)).note for start in range(2)]
    assert [(*shown[0], limit) for shown, limit, _ in session.asked] == [
        (20, 10, 8),
        (10, 20, 90),
        (10, 20, 90),
    ]
    assert [cost["tokens"] for cost in costs] == [2, 2]


def test_the_interval_of_cost_draws_the_same_batches_for_both():
    rng = np.random.default_rng(0)
    base = {("b", i): cost(float(s), 10, 100) for i, s in enumerate(rng.uniform(1, 5, 40))}
    own = {key: cost(1.1 * one["seconds"], 10, 150) for key, one in base.items()}
    ratio = Total(own).latency_over(Total(base))
    assert ratio.parts == pytest.approx((1.1, 1.1, 1.1)), "batches differ, their ratios do not"
    assert Total(own).memory_over(Total(base)) == Estimate(1.5)
    noisy = {key: cost(float(rng.uniform(1, 5)), 10, None) for key in base}
    found, drawn = Total(noisy).latency_over(Total(base)), []
    for _ in range(2000):
        keys = [list(base)[i] for i in rng.integers(0, 40, 40)]
        drawn.append(sum(noisy[key]["seconds"] for key in keys) / sum(base[key]["seconds"] for key in keys))
    assert [found.low, found.high] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.03)


def test_cached_evidence_is_timed_apart_and_compared_on_its_own_batches():
    base = Total({("b", i): cost(1.0, 10, 100) for i in range(4)})
    notes = {("b", i): cost(1.2, 10, 100) | ({"cached_seconds": 1.1} if i < 2 else {}) for i in range(4)}
    found = Total(notes).over(base)
    assert found["latency"].parts == pytest.approx((1.2, 1.2, 1.2))
    assert found["latency_cached"].parts == pytest.approx((1.1, 1.1, 1.1))
    assert "latency_cached" not in base.over(base)


def test_the_device_is_waited_for_before_the_clock_is_read(monkeypatch):
    """On a GPU, work that is only queued would look free, and the memory of the host says nothing."""
    said = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: said.append("wait"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: said.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 7)
    monkeypatch.setattr("reweigh.families.weights.input_device", lambda model: torch.device("cuda"))
    session = Recorder()
    session.respond = lambda inputs, **_: said.append("run") or [Answer("x", (1, 2))]
    record = Record(id=1, image="x.png", prompt="What?", max_new_tokens=90)
    note = asking(session)(Batch(0, [record], [Image.new("L", (2, 1))], 5)).note
    assert said == ["run", "wait", "reset", "run", "wait"]  # the first one warms up
    assert note["seconds"] > 0
    assert note["peak"] == 7
    assert memory_of("cuda") != memory_of("cpu") == memory_of(None)


def test_only_reweigh_is_timed_with_cached_evidence_and_its_texts_stay(monkeypatch):
    from reweigh import world
    from reweigh.attached import attach
    from reweigh.families.load import load as load_world
    from reweigh.world.scenes import scene

    model, processor = load_world(world.path(), device="cpu")
    attached = attach(model, processor, table=world.table_path())
    record = Record(id=1, image="x.png", prompt="What is there?", max_new_tokens=5)
    pictures = [scene("evaluation", index=0).image()]
    first, later = (Batch(start=start, records=[record], pictures=pictures, seed=5) for start in (0, 100))
    ask = asking(attached)
    answered = ask(first)
    assert answered.note["cached_seconds"] > 0
    assert "cached_seconds" not in ask(later).note, "the first 100 records are enough"
    assert answered.answers == ask(later).answers
    assert "cached_seconds" not in asking(make_method("base", model, processor, {}).session)(first).note


def test_times_of_another_run_are_marked_and_not_shaded():
    def timed_at(*clocks):
        return Total(
            {("w", i): {"clock": one, "seconds": 2.0, "tokens": 1, "peak": 5} for i, one in enumerate(clocks)}
        )

    base = timed_at("20:44", "20:44", "20:50")  # stopped and resumed
    assert timed_at("20:44", "20:44", "20:50").over(base)["latency"].reason is None
    later = timed_at("20:50", "20:50", "20:50").over(base)
    assert later["latency"].value == 1.0
    assert later["latency"].reason == later["memory"].reason == "timed in another run than the base (20:50)"
    assert not later["latency"].map(lambda ratio: ratio + 5).beyond_chance
    note = _note(
        {"world": {"base": SimpleNamespace(summary=SimpleNamespace(n=100))}}, None, "here", {"VCD": "20:50"}
    )
    assert "timed in another run than greedy, so not comparable: VCD (20:50)" in note


@pytest.mark.parametrize(("n", "warned"), [(20, True), (99, True), (100, False), (500, False)])
def test_a_comparison_says_how_many_records_it_is_of(n, warned):
    note = _note({"world": {"base": SimpleNamespace(summary=SimpleNamespace(n=n))}}, None, "of the host", {})
    assert note.startswith(f"{n} records of world")
    assert (f"{n} records are too few, 100 are needed to claim a difference" in note) is warned


def texts_of(rows):
    return [json.loads(line)["response"] for line in rows.splitlines()]


def texts(path):
    return texts_of(path.read_bytes())


@pytest.mark.slow
def test_the_command(checkpoint, tmp_path):
    out = tmp_path / "out"
    twin.table(VOCABULARY).save_pretrained(tmp_path / "table")
    arguments = ["compare", str(checkpoint("llava")), "-b", "world", "--methods", "cut,vcd,opera,reweigh"]
    arguments += ["--limit", "2"]
    arguments += ["--table", str(tmp_path / "table"), "--force"]
    arguments += ["--method-option", "opera.num_beams=2", "--method-option", "opera.num_attn_candidates=2"]
    arguments += ["--option", "scenes=2", "--out", str(out), "--json"]
    runner = CliRunner()
    first = runner.invoke(app, arguments, catch_exceptions=False)
    assert first.exit_code == 0, first.output
    made = json.loads((out / "comparison.json").read_text())
    assert [row["method"] for row in made["rows"]] == [
        "Base (greedy)",
        "Cut only (control)",
        "VCD",
        "OPERA",
        "ReWEIGH",
    ]
    assert made["rows"][0]["figures"]["Cost/Lat."]["value"] == 1.0
    assert made["rows"][2]["figures"]["Cost/Lat."]["value"] > 1
    for face in ("md", "html", "tex"):
        assert (out / f"comparison.{face}").stat().st_size > 200
    responses = out / "world" / "vcd" / "rows.jsonl"
    whole = responses.read_bytes()
    responses.write_bytes(whole.splitlines(keepends=True)[0])
    (responses.parent / "manifest.json").unlink()
    again = runner.invoke(app, arguments, catch_exceptions=False)
    assert again.exit_code == 0
    assert texts(responses) == texts_of(whole), "a stopped comparison ends with the same answers"
    frame = reweigh.read(out)
    assert frame.one(arm="vcd", figure="latency").value > 1
    assert frame.one(arm="vcd", figure="length", against="base").bounded
    assert frame.about["arms"]["reweigh"]["table_sha256"]
    other = runner.invoke(app, [*arguments, "--method-option", "vcd.alpha=0.5"])
    assert other.exit_code != 0
    assert "decoding" in str(other.exception)
    more = [*arguments, "--method-option", "vcd@half.alpha=0.5"]
    more[more.index("--methods") + 1] += ",vcd@half"
    whole = responses.read_bytes()
    longer = runner.invoke(app, more, catch_exceptions=False)
    assert longer.exit_code == 0
    assert responses.read_bytes() == whole, "what is finished is not run again"
    made = json.loads((out / "comparison.json").read_text())
    assert [row["method"] for row in made["rows"]][-2:] == ["ReWEIGH", "VCD (half)"]


@pytest.mark.slow
def test_methods_that_need_files_take_them_from_options_or_tuning_records(tmp_path):
    """ASD, ProjectAway and HALC on the embedded world, with files as users make them; none sees an evaluation scene."""
    runner = CliRunner()

    def call(*arguments):
        done = runner.invoke(app, [str(one) for one in arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    truth = tmp_path / "truth"
    call("world", "draw", "-o", truth, "--split", "evaluation", "--count", 2, "--boxes")
    options = {
        "halc@oracle-detector.detect": truth / "boxes.jsonl",
        "halc@oracle-detector.is_entity": truth / "words.txt",
        "halc@oracle-detector.match": "own",
    }
    given = [part for name, value in options.items() for part in ("--method-option", f"{name}={value}")]
    call(
        *("compare", "world", "-m", "base,asd,projectaway,halc@oracle-detector", *given),
        *("--option", "scenes=2", "--batch-size", 2, "--tuning-limit", 30, "-o", tmp_path / "out"),
    )
    steering = tmp_path / "out" / "steering"
    assert SteeringVectors.load(steering).made_with["benchmark"]["options"]["split"] == "tuning"
    words = steering / "hallucinated.txt"
    listed = hallucinated_objects(read_scored(steering / "answers").items)
    assert words.read_text().splitlines() == [name for name, _ in listed[:10]]
    assert all(count > 0 for _, count in listed)
    made = json.loads((tmp_path / "out" / "comparison.json").read_text())
    rows = [row["method"] for row in made["rows"]]
    assert rows == ["Base (greedy)", "ASD (re-implemented)", "ProjectAway", "HALC (oracle-detector)"]
    record = json.loads((tmp_path / "out" / "world" / "projectaway" / "record.json").read_text())["record"]
    kept = record["decoding"]["options"]["erase"]
    assert kept["file"] == "hallucinated.txt"
    assert len(kept["sha256"]) == 64
    words.write_text("zebra\n")
    other = runner.invoke(
        app,
        [
            "compare",
            "world",
            "-m",
            "projectaway",
            "--method-option",
            f"projectaway.erase={words}",
            "--option",
            "scenes=2",
            "--batch-size",
            "2",
            "-o",
            str(tmp_path / "out"),
        ],
    )
    assert "decoding.options.erase.sha256" in str(other.exception)
