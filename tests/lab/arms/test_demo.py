"""``reweigh demo`` as a user runs it, with the shipped table and a few scenes."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from reweigh.cli.app import app
from reweigh.world import operating_point
from reweigh.world.scenes import scenes
from tools.training.check import caption_figures
from tools.training.speaking import descriptions, load

SCENES = 20
COLUMNS = {
    "CHAIR_S": "chair_s",
    "CHAIR_I": "chair_i",
    "distinct CHAIR_I": "chair_i_distinct",
    "Recall": "recall",
    "F1": "f1",
    "Words": "length",
    "Mentions": "mentions",
}


def demo(report, *more):
    arguments = ["demo", "--quick", "--scenes", str(SCENES), "-o", str(report), *more]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output + str(done.exception)
    assert f"written: {report}" in done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What a person sees: the text on the terminal and the page."""
    report = tmp_path_factory.mktemp("demo") / "report.html"
    return demo(report), report.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """What a program sees."""
    report = tmp_path_factory.mktemp("demo") / "report.html"
    found = json.loads(demo(report, "--json"))
    assert report.is_file()
    return found


def table_rows(text):
    """For each row of the printed table its first word and the first number of every column."""
    names = ("base", "ReWEIGH", "difference")
    found = {}
    for line in text.splitlines():
        name, *cells = re.split(r"\s{2,}", line.strip())
        if name in names and name not in found:
            found[name] = [float(cell.split()[0]) for cell in cells]
    return found


@pytest.mark.slow
def test_the_table_shows_the_figures_of_the_json(shown, figures):
    text, _ = shown
    point = operating_point()
    assert f"{SCENES} evaluation scenes, layer {point['layer']}, beta {point['beta']:g}" in text
    heading = next(line for line in text.splitlines() if line.strip().startswith("decoding"))
    named = [part.strip(" ↓↑") for part in re.split(r"\s{2,}", heading.strip())]
    assert named == ["decoding", *COLUMNS]
    rows = table_rows(text)
    for name, key in (("base", "base"), ("ReWEIGH", "reweigh")):
        assert rows[name] == [pytest.approx(figures[key][column], abs=0.051) for column in COLUMNS.values()]
    gaps = [figures["reweigh"][column] - figures["base"][column] for column in COLUMNS.values()]
    assert rows["difference"] == [pytest.approx(gap, abs=0.051) for gap in gaps]
    share = 100 * gaps[1] / figures["base"]["chair_i"]
    assert f"(CHAIR_I) changed by {share:+.1f}%" in text


@pytest.mark.slow
def test_the_base_figures_are_those_of_another_path(figures):
    # Without sessions, benchmarks and the demonstration: the model's own `generate`, counted by the world's check.
    chosen = list(scenes("evaluation", SCENES))
    expected = caption_figures(chosen, descriptions(*load(), chosen))
    assert figures["base"]["n"] == figures["reweigh"]["n"] == SCENES
    for name in COLUMNS.values():
        assert figures["base"][name] == pytest.approx(expected[name])
    assert figures["reweigh"]["chair_i"] < figures["base"]["chair_i"]


@pytest.mark.slow
def test_the_page_explains_a_change_and_needs_no_other_file(shown, figures):
    text, page = shown
    before, after = (figures[name]["chair_i"] for name in ("base", "reweigh"))
    assert f"{before:.0f} of 100 named objects were not there, now {after:.0f}" in page
    assert "Only objects are scored" in page
    for title in ("Figures", "What changed"):
        assert f">{title}</h2>" in page
    assert "Evidence for suppressed" in page
    assert "data:image/png;base64," in page
    assert "<svg" in page
    assert not re.search(r"(?:src|href)=[\"']?https?:", page)
    named = re.findall(r"^(evaluation-0-\d+): ", text, flags=re.MULTILINE)
    assert named
    assert all(f"<h3>Scene {int(name.rpartition('-')[2])}</h3>" in page for name in named)
    assert 'alt="Drawn scene with ' in page
    assert 'class="scale muted"' in page
