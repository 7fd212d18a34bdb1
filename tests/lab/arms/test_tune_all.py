"""The same budget for every method: its grid, the rule, the frontier, and the command stopped and resumed."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import reweigh
from reweigh.cli.app import app
from reweigh.errors import InputError
from reweigh.lab.arms.tune.search import Point
from reweigh.lab.arms.tune_all import (
    BUDGET,
    Tuning,
    frontiers,
    note,
    settings_of,
    settings_table,
    tune_all,
    tuned_name,
    unbeaten,
)
from reweigh.lab.estimate import Estimate
from reweigh.rivals import DECODERS, check_options

UNTUNED = {"base", "greedy", "sampling", "push"}
"""Plain decoding without an option, and the control for yes/no questions, which is not judged by objects."""


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in UNTUNED])
def test_every_method_has_the_same_budget_and_its_default_among_the_settings(name):
    entry, settings = DECODERS[name], settings_of(name)
    assert len(settings) == len({json.dumps(one) for one in settings}) == BUDGET
    assert 1 <= len(entry.grid) <= 2
    parameters = inspect.signature(entry).parameters
    for setting in settings:
        given = {"table": "x", "vectors": "x", "erase": "x", "detect": "x", "match": "x"}
        check_options(name, entry, {**{key: given[key] for key in given if key in parameters}, **setting})
    official = {option: parameters[option].default for option, _ in entry.grid}
    if None not in official.values():  # ReWEIGH's beta comes with its table
        assert official in settings


def test_plain_decoding_is_not_tuned():
    assert all(settings_of(name) == [] for name in UNTUNED)


def tried(chair_i, recall, *, gain=0.1, eligible=True, **setting):
    metrics = {"chair_i": Estimate(chair_i), "recall": Estimate(recall)}
    metrics |= {"chair_s": Estimate(chair_i), "f1": Estimate(recall)}
    return Point(setting, metrics, gain, eligible)


def tuning(**methods):
    base = tried(17.0, 80.0).metrics
    about = {"records": 9, "benchmark": {"name": "world"}, "bound": 0.5}
    return Tuning(base, methods, {name: name.upper() for name in methods}, about)


def test_the_highest_gain_within_the_bound_is_chosen():
    made = tuning(
        a=[
            tried(9, 80, gain=0.3, eligible=False, k=1),
            tried(14, 80, gain=0.1, k=0),
            tried(12, 80, gain=0.2, k=2),
            tried(12, 80, gain=0.2, k=3),
        ],
        b=[tried(18, 79, gain=-0.1, k=1), tried(17, 80, gain=0.0, k=2), tried(None, 80, gain=None, k=3)],
    )
    assert made.chosen("a").setting == {"k": 2}, "of equal ones the first"
    assert made.chosen("b") is None
    said = {(row[0], row[1]): row[-1] for row in settings_table(made).rows}
    assert said["A", "k 2"] == "chosen"
    assert said["A", "k 1"] == "F1 falls too far"
    assert "9 tuning records" in note(made)


def better(one, other):
    (x, y), (its_x, its_y) = (
        (each.metrics["chair_i"].value, each.metrics["recall"].value) for each in (one, other)
    )
    return (x < its_x and y >= its_y) or (x <= its_x and y > its_y)


def test_the_frontier_by_brute_force():
    rng = np.random.default_rng(5)
    for _ in range(50):
        points = [tried(float(x), float(y), n=n) for n, (x, y) in enumerate(rng.integers(0, 6, (7, 2)))]
        expected = {one.setting["n"] for one in points if not any(better(other, one) for other in points)}
        assert {one.setting["n"] for one in unbeaten(points)} == expected
        recalls = [one.metrics["recall"].value for one in unbeaten(points)]
        assert recalls == sorted(recalls)


def test_a_method_whose_figures_are_undefined_is_not_drawn():
    made = tuning(a=[tried(12, 80, k=1)], b=[tried(None, 80, gain=None, eligible=False, k=1)])
    assert [front.name for front in frontiers(made)] == ["A"]


def test_variants_of_one_method_have_their_own_frontier():
    made = replace(
        tuning(a=[tried(12, 80, k=1)], b=[tried(13, 81, k=1)]), titles={"a": "VCD", "b": "VCD (half)"}
    )
    assert [front.name for front in frontiers(made)] == ["VCD", "VCD (half)"]


def test_a_variant_keeps_its_label():
    assert (tuned_name("vcd"), tuned_name("halc@oracle")) == ("vcd@tuned", "halc@oracle-tuned")
    with pytest.raises(InputError, match="vcd@tuned"):
        tune_all((None, None), {"vcd": {}, "vcd@tuned": {}}, _NoRuns(), None)


class _NoRuns:
    template = None


@pytest.mark.slow
def test_the_command(tmp_path):
    """Rows for both, a drawing, and after a kill the same bytes; tuning never sees a record of the evaluation."""
    out = tmp_path / "out"
    arguments = [
        "--json",
        "compare",
        "world",
        "-m",
        "sampling,cut,reweigh",
        "--tune-all",
        "--tuning-limit",
        "6",
    ]
    arguments += [
        "--option",
        "scenes=6",
        "--option",
        "scene_seed=3",
        "--batch-size",
        "6",
        "-o",
        str(out),
        "--json",
    ]
    first = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert first.exit_code == 0, first.output
    rows = [row["method"] for row in json.loads((out / "comparison.json").read_text())["rows"]]
    assert rows == [
        "Base (greedy)",
        "Sampling",
        "Cut only (control)",
        "Cut only (control, tuned)",
        "ReWEIGH",
        "ReWEIGH (tuned)",
    ]
    found = reweigh.read(out / "tuning")
    assert len(found.values().distinct("arm")) == 1 + 2 * BUDGET
    assert set(found.about["chosen"]) == {"cut", "reweigh"}
    assert found.about["benchmark"]["options"] == {"scene_seed": 3, "split": "tuning", "scenes": 300}
    evaluated = json.loads((out / "world" / "base" / "record.json").read_text())["record"]
    assert evaluated["benchmark"]["options"] == {"scenes": 6, "scene_seed": 3}
    assert (out / "frontier.png").stat().st_size > 5000
    assert "Every method tuned alike" in (out / "comparison.html").read_text()
    responses = out / "tuning" / "world" / "reweigh-beta-2.0" / "rows.jsonl"
    whole, page = responses.read_bytes(), (out / "tuning" / "frame.json").read_bytes()
    responses.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    (responses.parent / "manifest.json").unlink()
    again = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert again.exit_code == 0, again.output
    assert (responses.read_bytes(), (out / "tuning" / "frame.json").read_bytes()) == (whole, page)


@pytest.mark.parametrize(
    ("more", "word"),
    [(["-b", "objects"], "tuning"), (["--ray", "local"], "--ray")],
)
def test_what_cannot_be_tuned_is_refused(more, word, tmp_path):
    truth = tmp_path / "truth.jsonl"
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    truth.write_text('{"image": "a.png", "objects": ["dog"]}\n')
    given = ["--option", f"truth={truth}", "--option", f"images={tmp_path}"] if "-b" in more else []
    done = CliRunner().invoke(
        app, ["compare", "world", "--tune-all", "-m", "cut", *more, *given, "-o", str(tmp_path / "out")]
    )
    assert done.exit_code != 0
    assert word in str(getattr(done.exception, "message", "")) + str(getattr(done.exception, "hint", ""))
