"""A comparison's shades, places and examples, and the four formats of its page."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from reweigh.engines.answer import Answer
from reweigh.lab.arms.compare import fluency
from reweigh.lab.arms.compare.fluency import LOOKED_AT, LOWEST, broken_share, least_likely
from reweigh.lab.arms.compare.methods import Method
from reweigh.lab.arms.compare.report import Comparison, build_page, choose
from reweigh.lab.arms.compare.run import contrast_of
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import AGAINST, Frame, Row
from reweigh.lab.views.contrast import Contrast, shade
from reweigh.lab.views.table import Column

COLUMNS = [
    (Column("CHAIR_I", "lower", 2, group="CHAIR"), {"benchmark": "w", "figure": "chair_i"}),
    (Column("F1", "higher", 2, group="CHAIR"), {"benchmark": "w", "figure": "f1"}),
]
FIGURES = {"chair_i": "w", "f1": "w", "latency": None, "memory": None}


def ratio(value):
    return Estimate(value, value - 0.005, value + 0.005)


def beyond(value):
    """A difference beyond chance."""
    return Estimate(value, value - 0.5, value + 0.5)


VALUES = {
    "base": [Estimate(50.0, 45.0, 55.0), Estimate(80.0), Estimate(1.0), Estimate(1.0)],
    "vcd": [Estimate(59.0), Estimate(78.0), ratio(2.01), ratio(1.06)],
    "pai": [Estimate(42.4), Estimate(60.0), ratio(2.14), Estimate(1.02)],
    "re weigh": [Estimate(39.0, 35.5, 41.0), Estimate(80.0), Estimate(1.02, 0.99, 1.05), Estimate(1.0)],
}
CHANGES = {
    "vcd": [beyond(9.0), beyond(-2.0)],
    "pai": [beyond(-7.6), beyond(-20.0)],
    "re weigh": [Estimate(-11.0, -15.0, -7.0), Estimate(0.0, -1.0, 1.0)],
}
METHODS = [
    Method("base", "Base (greedy)"),
    Method("vcd", "VCD", regime={"do_sample": True}),
    Method("pai", "PAI"),
    Method("re weigh", "ReWEIGH"),
    Method("opera", "OPERA", reason="its attention cannot be read"),
]


def rows(found, against):
    return [
        Row({"benchmark": FIGURES[figure], "arm": arm, "figure": figure, AGAINST: against}, one)
        for arm, numbers in found.items()
        for figure, one in zip(FIGURES, numbers, strict=False)
    ]


FRAME = Frame([*rows(VALUES, None), *rows(CHANGES, "base")])
CONTRAST = contrast_of(FRAME, METHODS, COLUMNS, METHODS[0].name)
SCORED = {"w": {name: SimpleNamespace(texts={}) for name in ("base", "re weigh")}}
TABLE = Comparison("llava", METHODS, CONTRAST, SCORED, ["A note."])


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (Estimate(-3.0, -5.0, -1.0), "better"),
        (Estimate(-3.0, -7.0, 1.0), ""),
        (Estimate(-30.0, -40.0, 0.0), ""),
        (Estimate(-30.0, -40.0, -20.0), "better-strong"),
        (Estimate(3.0, 1.0, 5.0), "worse"),
        (Estimate(10.1, 1.0, 15.0), "worse-strong"),
        (Estimate(-3.0), ""),
    ],
)
def test_a_shade_needs_an_interval_without_zero(change, wanted):
    assert shade(change, 50.0, "lower") == wanted
    assert shade(change, 50.0, None) == ""
    assert shade(change, 0.0, "lower") == wanted.removesuffix("-strong"), "no share of zero"


def test_a_shade_follows_the_direction():
    assert shade(Estimate(3.0, 1.0, 5.0), 50.0, "higher") == "better"
    assert [CONTRAST.shade(0, j) for j in range(4)] == [""] * 4, "the base has none"
    assert [CONTRAST.shade(4, j) for j in range(4)] == [""] * 4, "nor what was not run"


def test_cost_is_shaded_if_the_interval_of_its_ratio_excludes_one():
    assert [CONTRAST.shade(i, 2) for i in range(5)] == ["", "worse-strong", "worse-strong", "", ""]
    assert [CONTRAST.shade(i, 3) for i in range(3)] == ["", "worse", ""]


def test_best_and_second_are_judged_as_printed():
    assert [CONTRAST.place(i, 0) for i in range(5)] == ["", "", "second", "best", ""]
    assert [CONTRAST.place(i, 1) for i in range(5)] == ["best", "second", "", "best", ""]
    assert {CONTRAST.place(i, 2) for i in range(5)} == {""}, "cost has no winner"


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.floats(0, 100)), min_size=2, max_size=6), st.booleans())
def test_places_twin(values, lower):
    numbers = [
        Row({"arm": i, "figure": "x", AGAINST: None}, Estimate(value)) for i, value in enumerate(values)
    ]
    column = (Column("x", "lower" if lower else "higher", 1), {"figure": "x"})
    table = Contrast(Frame(numbers), [(f"{i}", {"arm": i}) for i in range(len(values))], [column])
    known = [round(float(f"{value:.1f}"), 1) for value in values if value is not None]
    for i, value in enumerate(values):
        place = table.place(i, 0)
        if value is None or len(known) < 2:
            assert place == ""
            continue
        mine = round(float(f"{value:.1f}"), 1)
        ahead = {one for one in known if (one < mine if lower else one > mine)}
        assert place == {0: "best", 1: "second"}.get(len(ahead), "")


def test_markdown():
    text = build_page(TABLE).markdown()
    assert text.startswith("# Comparison of decoders\n\nllava\n")
    assert "| method | CHAIR_I ↓ | F1 ↑ | Lat. ↓ | Mem. ↓ |" in text
    assert "| ReWEIGH | **39.00** ▲▲ [35.50, 41.00] | **80.00** | 1.02× [0.99, 1.05] | 1.00× |" in text
    assert "| PAI | <u>42.40</u> ▲ | 60.00 ▼▼ | 2.14× ▼▼" in text
    assert "| ReWEIGH | -11.00 ▲▲ [-15.00, -7.00] | +0.00 [-1.00, +1.00] |" in text
    assert "| OPERA | – | – | – | – |" in text
    assert "OPERA was not run: its attention cannot be read." in text
    assert "VCD: sampling" in text


def test_latex():
    first, second = build_page(TABLE).latex().split(r"\end{tabular}")[:2]
    assert r"\multicolumn{2}{c}{CHAIR} & \multicolumn{2}{c}{Cost}" in first
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in first
    assert r"CHAIR$_I$ $\downarrow$" in first
    assert r"PAI & \cellcolor{blue!10}\underline{42.40} & \cellcolor{red!35}60.00" in first
    assert r"\textbf{39.00} {\scriptsize [35.50, 41.00]}" in first
    assert first.count(r" \\") == 2 + len(METHODS)
    assert r"\begin{tabular}{lrr}" in second, "only columns that have differences"
    assert "Cost" not in second


def test_html_escapes_shades_draws_and_links_to_the_runs():
    page = build_page(Comparison("<b>model</b>", METHODS, CONTRAST, SCORED)).html()
    assert "<b>model</b>" not in page
    assert '<td class="better-strong best">39.00 ▲▲<span class="range">[35.50, 41.00]</span></td>' in page
    assert '<th colspan="2" class="group" scope="colgroup">CHAIR</th>' in page
    assert 'href="w/base/report.html"' in page
    assert 'href="w/re%20weigh/report.html"' in page
    assert page.count('class="narrow"') == 2, "CHAIR_I and F1 over cost, each for a phone too"
    assert "CHAIR_I over cost" in page
    assert "OPERA:" not in page, "what was not run has no run to link to"


def test_variants_of_one_method_are_told_apart_in_drawings():
    methods = [replace(one, title="VCD (half)") if one.name == "pai" else one for one in METHODS]
    page = build_page(Comparison("llava", methods, CONTRAST, SCORED)).html()
    [alt] = set(re.findall(r'aria-label="(CHAIR_I over cost[^"]*)"', page))
    assert [part.split(" ")[0] for part in alt.partition(": ")[2].split("; ")] == [
        "Base",
        "VCD",
        "VCD",
        "ReWEIGH",
    ]
    assert "VCD (half) 42.40" in alt


def test_json_keeps_unrounded_values():
    rows = json.loads(json.dumps(TABLE.to_json()))["rows"]
    ends = {
        "low": None,
        "high": None,
        "difference_value": -7.6,
        "difference_low": -8.1,
        "difference_high": -7.1,
    }
    assert rows[2]["figures"]["CHAIR/CHAIR_I"] == {
        "value": 42.4,
        **ends,
        "shade": "better",
        "place": "second",
    }
    assert rows[4]["figures"]["CHAIR/CHAIR_I"] == {"value": None, "shade": "", "place": ""}
    assert rows[4]["reason"]


@pytest.mark.parametrize("width", [30, 40, 60, 120])
def test_terminal_has_every_method_and_every_figure_at_any_width(width):
    stream = io.StringIO()
    Console(width=width, file=stream).print(build_page(TABLE).terminal())
    shown = stream.getvalue()
    assert "…" not in shown
    assert all(one.heading in shown for one, _ in CONTRAST.columns)
    parts = shown.count("\n method ")
    assert all(shown.count(f"\n {row.title} ") == parts for row in METHODS[1:])
    assert "[35.50" in shown
    assert "[-15.00" in shown
    assert parts == 2 or width < 120, "the figures and the differences"


def test_the_page_is_about_reweigh_or_the_last_row():
    assert TABLE.chief() is METHODS[3]
    assert Comparison("m", METHODS[:1], CONTRAST).chief() is METHODS[0]


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


@pytest.mark.parametrize(("lowest", "share"), [([[1.0, 1e-4], [0.5, 1e-9]], 0.5), ([[], []], 0.0)])
def test_the_share_of_broken_texts_is_over_all_that_were_read(lowest, share):
    assert broken_share([{"start": i, LOWEST: found} for i, found in enumerate(lowest)]) == share
    assert broken_share([{"start": 0}]) == 0.0, "an earlier version read none"


def test_only_the_first_sentences_are_read_again(monkeypatch):
    seen = []
    monkeypatch.setattr(fluency, "build_inputs", lambda *given, **_: given)
    monkeypatch.setattr(
        fluency, "least_likely", lambda _model, _processor, _inputs, text: seen.append(text) or 0.5
    )
    texts = ["A dog runs home.", " yes ", "A cat sits here.", "A cow eats grass."]
    batch = SimpleNamespace(start=LOOKED_AT - 3, pictures=[None] * 4, prompts=["?"] * 4)
    session = SimpleNamespace(model=None, processor=None)
    answers = [Answer(text, (1,)) for text in texts]
    call = SimpleNamespace(session=session, batch=batch, answers=answers, template=None)
    note = fluency.Fluency().note(call)
    assert seen == ["A dog runs home.", "A cat sits here."], (
        "one word is no sentence, and three records are left"
    )
    assert note == {LOWEST: [0.5, 0.5]}
