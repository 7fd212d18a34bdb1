"""`reweigh eval` as a user runs it: from the embedded model's answers to a comparison, and the AMBER score."""

from __future__ import annotations

import pytest
from typer.main import get_command

from reweigh.cli.app import app
from reweigh.errors import InputError, ReweighError
from reweigh.files.seals import read_sealed, write_sealed
from reweigh.lab.bootstrap import intervals
from reweigh.lab.runs.results import score_amber
from reweigh.lab.runs.score import Source, write_scores
from reweigh.lab.tasks import Item, Summary, find_benchmark
from reweigh.lab.tasks.amber.discriminative import amber_score


def test_run_score_and_diff(cli, tmp_path):
    shared = ("-b", "world", "--data", tmp_path / "pictures", "--option", "scenes=3", "--limit", "2")
    for name, more in (("base", ("--decoder", "base")), ("edited", ("--beta", "1.2"))):
        done = cli("eval", "run", "world", *shared, "-o", tmp_path / name, *more)
        assert done.code == 0, done.err
        assert "2 of 2" in done.err
        assert "next: reweigh eval diff" in done.err
        assert "CHAIR_S" in done.out, "a run scores and prints"
    assert "0 new answers" in cli("eval", "run", "world", *shared, "-o", tmp_path / "edited", *more).err
    for name in ("base", "edited"):
        results = cli("eval", "score", tmp_path / name, "--json").json
        assert results["n-samples"]["world"] == {"original": 2, "effective": 2}
        assert results["configs"]["world"]["options"] == {"scenes": 3}
    page = tmp_path / "diff.html"
    assert "CHAIR_S" in cli("eval", "diff", tmp_path / "base", tmp_path / "edited", "-o", page).out
    assert "world, reweigh against world, base" in page.read_text()
    other = read_sealed(tmp_path / "edited" / "results.json")
    other["summary"]["benchmark"] = "chair"
    write_sealed(tmp_path / "edited" / "results.json", other)
    assert "world" in cli("eval", "diff", tmp_path / "base", tmp_path / "edited").err


def scored_half(folder, name, counts):
    """A scored run folder of one half of AMBER, two images."""
    benchmark = find_benchmark(name)
    items = [Item(id=i, image=f"AMBER_{i}.jpg", counts=counts) for i in (1, 2)]
    summary = Summary.of(items, benchmark=name, metrics=intervals(items, benchmark.figures))
    write_scores(folder, items, summary, Source([]), benchmark=benchmark)
    return items


@pytest.fixture
def halves(tmp_path):
    described = scored_half(tmp_path / "g", "amber-generative", {"hallucinated_mentions": 1, "mentions": 4})
    kinds = {"questions": 4, "correct": 3, "truth_no": 2, "answered_no": 2, "rightly_no": 1}
    counts = {f"state.{name}": count for name, count in kinds.items()}
    return tmp_path, described, scored_half(tmp_path / "d", "amber-discriminative", counts)


def test_the_amber_score_of_two_runs(halves):
    folder, described, answered = halves
    metric = amber_score(described, answered)
    assert metric.value == pytest.approx((75 + 50) / 2, abs=0.01)
    assert score_amber(folder / "g", folder / "d") == metric


def test_the_amber_score_wants_both_halves_in_order(halves):
    folder = halves[0]
    with pytest.raises(InputError, match="amber-discriminative"):
        score_amber(folder / "d", folder / "g")
    with pytest.raises(ReweighError, match="none"):
        score_amber(folder / "g", folder / "none")


def test_an_undefined_amber_score_says_why(halves):
    folder = halves[0]
    scored_half(folder / "empty", "amber-discriminative", {"state.questions": 1})
    found = score_amber(folder / "g", folder / "empty")
    assert found.value is None
    assert found.reason


def parameters(command, path):
    """Every parameter of a command and of those below it."""
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from parameters(command.get_command(None, name), f"{path} {name}")
    yield from ((path, parameter) for parameter in command.params)


def test_o_is_the_output_everywhere():
    found = [
        (path, parameter.opts)
        for path, parameter in parameters(get_command(app), "reweigh")
        if {"-o", "--out", "--output"} & set(parameter.opts)
    ]
    assert [one for one in found if set(one[1]) != {"--out", "-o"}] == []
    assert len(found) >= 12
