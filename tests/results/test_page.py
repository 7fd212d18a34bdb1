"""A page is built part by part and needs no other file."""

from __future__ import annotations

from pathlib import Path

from reweigh.estimate import Estimate
from reweigh.results.page import Page
from reweigh.results.table import Column, Table


def test_parts_come_in_order_and_are_escaped(tmp_path: Path) -> None:
    page = Page("A <title>", lead="lead", footer="end").text("first")
    page.section("Numbers", anchor="numbers").table(Table([Column("a")], [["1 < 2"]]))
    page.intervals({"x": Estimate(1.0, 0.0, 2.0)}, "Drawn.").section("Rest").text("last", muted=True)
    text = page.write(tmp_path / "page.html").read_text()
    places = [
        text.index(one)
        for one in ("A &lt;title&gt;", "lead", "first", 'id="numbers"', "1 &lt; 2", "<svg", ">last<", ">end<")
    ]
    assert places[2:] == sorted(places[2:])
    assert "<script" not in text


def test_long_tables_are_folded_and_nothing_is_drawn_of_nothing() -> None:
    rows = [[str(number)] for number in range(5)]
    assert "<details>" in Page("x").table(Table([Column("a")], rows), fold=4).html()
    assert "<details>" not in Page("x").table(Table([Column("a")], rows)).html()
    assert "<figure" not in Page("x").intervals({}, "Nothing.").html()


def test_a_record_is_in_words() -> None:
    record = {"versions": {"torch": "2.13"}, "seen": [1, {"left": True}], "forced": False, "gone": None}
    shown = Page("A page").record(record, "what it depends on").html()
    for name, words in {"versions.torch": "2.13", "seen": "1, left yes", "forced": "no"}.items():
        assert f'<th class="words" scope="row">{name}</th><td class="words">{words}</td>' in shown
    assert "gone" not in shown
