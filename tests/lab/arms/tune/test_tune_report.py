"""What a search shows: intervals and paired differences on every face, shades beyond chance only, the grid's edge."""

from __future__ import annotations

import io
import random
from dataclasses import replace

import numpy as np
import pytest

import twin
from reweigh.files.artifacts import read_json
from reweigh.lab.arms.tune.report import Search
from reweigh.lab.arms.tune.search import BASE, GAIN, search
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame
from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.base import Item, Summary
from reweigh.lab.tasks.chair.metrics import count_caption, figures, summarize_metrics
from reweigh.tables.store import record_point

IMAGES = 60
INVENTS = {BASE: 0.8, (2, 1.0): 0.2, (2, 2.0): 0.8}
"""How often each point invents an object: one far less often than the base, one exactly as often."""


def described(invents: float) -> Scored:
    draw, items = random.Random(3), []
    for image in range(IMAGES):
        said = ["dog", "cat"] if image % 3 else ["dog"]
        said += ["car"] if draw.random() < invents else []
        items.append(Item(id=image, image=image, counts=count_caption(said, {"dog", "cat"}, words=4)))
    return Scored(items, Summary.of(items, benchmark="world", metrics=summarize_metrics(items)))


SCORED = {key: described(share) for key, share in INVENTS.items()}


@pytest.fixture(scope="module")
def report():
    scored = {}

    def score(points):
        return scored.update({where: SCORED.get(where, SCORED[2, 2.0]) for where in points}) or scored

    found = search(score, figures, "world", layers=[2], betas=[1.0, 2.0])
    on = {"benchmark": "world", "records": IMAGES, "bound": 0.5}
    return Search(found, "made", on)


def test_differences_and_gain_have_the_intervals_of_a_paired_bootstrap(report):
    """Against a twin that draws images one by one."""
    base, other = (SCORED[key].items for key in (BASE, (2, 1.0)))
    draw, changes, gains = np.random.default_rng(0), [], []
    for _ in range(1500):
        images = draw.integers(0, IMAGES, IMAGES)
        before, after = (_chair([run[image].counts for image in images]) for run in (base, other))
        changes.append(after["chair_i"] - before["chair_i"])
        better = [(before[name] - after[name]) / before[name] for name in ("chair_s", "chair_i")]
        better += [(after[name] - before[name]) / before[name] for name in ("recall", "f1")]
        gains.append(100 * sum(better) / 4)
    for name, drawn in (("chair_i", changes), (GAIN, gains)):
        metric = report.tuned.change(report.tuned.chosen, name)
        assert [metric.low, metric.high] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=1.5)
        assert metric.low < metric.value < metric.high


def _chair(counts):
    said, wrong, named, there = (
        sum(one[name] for one in counts)
        for name in ("mentions", "hallucinated_mentions", "recovered", "reference")
    )
    precision, recall = 100 * (1 - wrong / said), 100 * named / there
    return {
        "chair_s": 100 * sum(one["hallucinated_captions"] for one in counts) / len(counts),
        "chair_i": 100 - precision,
        "recall": recall,
        "f1": 2 * precision * recall / (precision + recall),
    }


def test_only_what_is_beyond_chance_is_shaded(report):
    made = report.contrast
    shades = {title: [made.shade(i, j) for j in range(5)] for i, (title, _) in enumerate(made.rows)}
    assert shades["layer 2, beta 1, chosen"] == ["better-strong", "better-strong", "", "better", "better"]
    assert set(shades["layer 2, beta 2"]) == {""} == set(shades["base"])


def test_every_face_shows_intervals_and_differences(report, tmp_path):
    from rich.console import Console

    files = {path.suffix: path.read_text() for path in report.report().write(tmp_path)}
    change = report.tuned.change(report.tuned.chosen, "chair_i")
    metric = report.tuned.chosen.metrics["chair_i"]
    paired, own = (
        f"[{one.low:{form}.2f}, {one.high:{form}.2f}]" for one, form in ((change, "+"), (metric, ""))
    )
    for suffix in (".md", ".tex", ".html"):
        assert paired in files[suffix], suffix
        assert own in files[suffix], suffix
    page = read_json(tmp_path / "operating_point.json")
    assert page["grid"][0]["difference"]["chair_i"] == change.to_json()
    assert page["grid"][0]["intervals"]["chair_i"] == [metric.low, metric.high]
    assert set(page["base"]["intervals"]) == {"chair_s", "chair_i", "recall", "f1"}
    console = Console(width=160, file=io.StringIO())
    console.print(report.page().terminal())
    said = console.file.getvalue()
    assert paired in said
    assert own in said


def test_the_page_names_its_rows_and_columns(report):
    page = report.page().html()
    assert page.count('scope="row"') == 4 + 3
    assert 'scope="col">point</th>' in page
    assert 'role="img"' in page


def test_advice_says_what_changes_and_that_the_grid_ends_there(report):
    said = "\n".join(report.advice())
    assert "layer 2, beta 1 against the base: CHAIR_S -" in said
    assert "reweigh describe made IMAGE --layer 2 --beta 1" in said
    assert "the smallest that was tried" in said


def test_a_point_whose_gain_may_be_chance_is_neither_recommended_nor_recorded(report, tmp_path):
    assert report.doubt() is None
    twin.table(64, layer=2).save_pretrained(tmp_path)
    assert report.kept_point(tmp_path) is None
    assert report.operating_point().layer == 2
    record_point(tmp_path, replace(report.operating_point(), records=10**6))
    assert "more records" in report.kept_point(tmp_path)
    rows = [
        replace(row, estimate=Estimate(5.0, -1.0, 9.0)) if row["figure"] == GAIN else row
        for row in report.tuned.frame
    ]
    unsure = replace(report, tuned=replace(report.tuned, frame=Frame(rows)))
    assert "zero" in unsure.kept_point(tmp_path / "empty")
    said = "\n".join(unsure.advice())
    assert "not recommended" in said
    assert "reweigh describe" not in said
