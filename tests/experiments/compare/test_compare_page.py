"""The page of a comparison: chosen examples, links to the runs, plots, differences in every face; and broken texts."""

from __future__ import annotations

import io

import pytest
import torch

from reweigh.estimate import Estimate
from reweigh.experiments.compare import report as render
from reweigh.experiments.compare.examples import choose
from reweigh.experiments.compare.fluency import least_likely
from reweigh.experiments.compare.report import html
from reweigh.experiments.compare.table import Comparison, MethodRow, cost_columns, figure_column

FIGURES = [
    figure_column("World", "CHAIR_I", "lower"),
    figure_column("World", "F1", "higher"),
    *cost_columns(),
]
CHANGE = Estimate(value=-3.0, low=-5.0, high=-1.0)
BASE = MethodRow(
    "Base",
    [20.0, 80.0, 1.0, 1.0],
    "greedy",
    None,
    [Estimate(value=20.0, low=18.0, high=22.0)],
    [],
    {"w": "w/base"},
)
OWN = MethodRow(
    "ReWEIGH",
    [17.0, 81.0, 1.1, 1.0],
    "greedy",
    None,
    [Estimate(value=17.0, low=15.5, high=19.0)],
    [CHANGE],
    {"w": "w/re weigh"},
)
TABLE = Comparison("m", FIGURES, [BASE, OWN, MethodRow("OPERA", [None] * 4, reason="cannot")], ["A note."])


def test_every_face_has_intervals_and_differences():
    from rich.console import Console

    stream = io.StringIO()
    Console(width=60, file=stream).print(render.terminal(TABLE))
    faces = {
        "terminal": stream.getvalue(),
        "markdown": render.markdown(TABLE),
        "latex": render.latex(TABLE),
        "html": html(TABLE),
    }
    for face, shown in faces.items():
        assert "[15.5" in shown, face
        assert "[-5.0" in shown, face
    cell = TABLE.to_json()["rows"][1]["figures"]["World/CHAIR_I"]
    assert (cell["low"], cell["difference_value"], cell["difference_high"]) == (15.5, -3.0, -1.0)


def test_the_latex_of_differences_has_only_columns_that_have_some():
    second = render.latex(TABLE).split(r"\end{tabular}")[1]
    assert r"\begin{tabular}{lr}" in second
    assert r"\multicolumn{1}{c}{World}" in second
    assert "Cost" not in second


def test_the_page_links_to_the_runs_and_draws_quality_against_cost():
    page = html(TABLE)
    assert page.count('href="w/base/report.html"') == 2
    assert 'href="w/re%20weigh/report.html"' in page
    assert page.count('class="narrow"') == 2, "CHAIR_I and F1, each for a telephone too"
    assert "CHAIR_I over cost" in page
    assert "OPERA:" not in page, "what was not run has no run to link to"


def test_the_page_is_about_reweigh_or_the_last_row():
    assert TABLE.chief() is OWN
    assert Comparison("m", FIGURES, [BASE]).chief() is BASE


def test_examples_are_chosen_by_numbers():
    base = {"a": 3, "b": 2, "c": 0, "d": 1, "e": 1}
    own = {"a": 0, "b": 0, "c": 2, "d": 0, "e": 1}
    wild = {"a": 3, "b": 2, "c": 0, "d": 1, "e": 9}
    assert choose(base, own, [base, own, wild]) == ["a", "b", "c", "e"]
    assert choose(base, base, [base, base]) == ["a"], "nothing gained or lost: one picture all the same"
    assert choose({}, {}, [{}, {}]) == []


class Speaker:
    """A model of five tokens whose logits are given."""

    def __init__(self, logits):
        self.logits = logits

    def __call__(self, input_ids, **_):
        self.seen = input_ids
        return type("Output", (), {"logits": self.logits[None, : input_ids.shape[1]]})()


def test_the_least_likely_token_twin():
    logits = torch.randn(7, 5, generator=torch.Generator().manual_seed(3))
    speaker = Speaker(logits)

    def tokenizer(_text, **_options):
        return {"input_ids": torch.tensor([[3, 0, 4]])}

    found = least_likely(speaker, tokenizer, {"input_ids": torch.tensor([[1, 2, 2, 1]])}, "any text")
    assert speaker.seen.tolist() == [[1, 2, 2, 1, 3, 0, 4]]
    chances = [torch.softmax(logits[4], 0)[0], torch.softmax(logits[5], 0)[4]]  # of 0 after 3, of 4 after 0
    assert found == pytest.approx(float(min(chances)), rel=1e-5)
