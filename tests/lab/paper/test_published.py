"""The published numbers: complete, consistent with each other, and held against measured ones by their order alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from reweigh.lab.estimate import Estimate
from reweigh.lab.paper.published import REFERENCE, published
from reweigh.lab.paper.study import Entry

SOURCE = Path(os.environ.get("REWEIGH_PAPER", "reweigh.tex"))
"""The paper's LaTeX source, which is not part of this repository."""


@pytest.mark.skipif(not SOURCE.is_file(), reason="REWEIGH_PAPER names no source of the paper")
def test_every_label_of_the_paper_is_there_and_every_number_is_in_its_source() -> None:
    text = SOURCE.read_text(encoding="utf-8")
    labels = re.findall(r"\\label\{((?:tab|fig|alg):[^}]*)\}", text)
    assert [label for label in published() if not label.startswith("text:")] == labels
    numbers = {
        float(one.replace(",", "")) for one in re.findall(r"\d[\d,]*(?:\.\d+)?", text.replace("{,}", ","))
    }
    shown = [
        part
        for table in published().values()
        for values in table.values.values()
        for value in values.values()
        for part in value.parts
        if part is not None
    ]
    assert len(shown) > 1500
    assert [one for one in shown if abs(float(one)) not in numbers] == []


def test_tables_that_repeat_numbers_agree() -> None:
    tables = published()
    full, main = tables["tab:chair-full"].values, tables["tab:chair-amber"].values
    for model in main:
        for entry, value in main[model].items():
            if entry.metric in ("CHAIR_S", "CHAIR_I", "F1"):
                assert full[model][entry] == value
    size = tables["tab:calibration-size"].values[REFERENCE]
    grid = tables["tab:layer-beta-grid"].values[REFERENCE]
    for metric in ("CHAIR_S", "CHAIR_I", "F1"):
        chosen = full[REFERENCE][Entry("ReWEIGH", metric)]
        assert size[Entry("500", metric)] == chosen
        assert grid[Entry("layer 29, beta 1.1", metric)] == chosen
        assert grid[Entry("layer 28, beta 0", metric)] == full[REFERENCE][Entry("Base", metric)]


def test_shares_sum_to_a_hundred_and_nets_are_differences() -> None:
    tables = published()
    for label in ("tab:variance-decomposition", "fig:token-decomposition"):
        values = tables[label].values[REFERENCE]
        for row in tables[label].rows:
            if Entry(row, "between %") in values:
                assert values[Entry(row, "between %")].number + values[
                    Entry(row, "within %")
                ].number == pytest.approx(100)  # type: ignore[arg-type]
    values = tables["tab:detection-not-mitigation"].values[REFERENCE]
    for row in ("rank", "probability"):
        net, removed, introduced = (
            values[Entry(row, one)].number for one in ("Net", "Removed", "Introduced")
        )
        assert net == removed - introduced


def test_orders_compare_rows_columns_and_signs() -> None:
    tables = published()
    table = tables["tab:detection-not-mitigation"]
    paper = table.values[REFERENCE]
    assert all(order.agrees for order in table.orders(paper, paper))
    measured = {**paper, Entry("rank", "CHAIR_S"): Estimate(60.0)}
    wrong = [order.first.metric for order in table.orders(paper, measured) if not order.agrees]
    assert wrong == ["CHAIR_S"]

    table = tables["tab:allocation-mechanism"]
    measured = {
        Entry("rank donor", "effect"): Estimate(-1.0, -2.0, 0.0),
        Entry("lexical", "effect"): Estimate(0.1),
    }
    found = {order.first.row: order.agrees for order in table.orders(table.values[REFERENCE], measured)}
    assert found == {"rank donor": False, "lexical": True}

    table = tables["tab:token-reference-correspondence"]
    measured = {
        Entry("token median", "global"): Estimate(2.0),
        Entry("token median", "token-specific"): Estimate(1.0),
    }
    assert [order.agrees for order in table.orders(table.values[REFERENCE], measured)] == [True]


def test_what_the_paper_shows_as_equal_is_not_compared() -> None:
    table = published()["tab:registration-rules"]
    measured = {Entry(row, "AMBER-disc F1"): Estimate(i) for i, row in enumerate(table.rows)}
    assert table.orders(table.values[REFERENCE], measured) == []


def test_a_model_of_the_paper_is_held_against_itself() -> None:
    table = published()["tab:chair-full"]
    assert table.reference("Qwen2.5-VL-7B") == "Qwen2.5-VL-7B"
    assert table.reference("reweigh world") == REFERENCE
    assert published()["fig:method"].reference("reweigh world") is None
