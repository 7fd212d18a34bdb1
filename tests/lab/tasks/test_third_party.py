"""A third party's benchmark, as the documentation writes it, on every path: recorded, scored, diffed, compared."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from answering import answer
from reweigh import registry
from reweigh.cli.app import app
from reweigh.engines.answer import Answer
from reweigh.errors import InputError
from reweigh.files.artifacts import append_jsonl, read_json
from reweigh.lab.runs.diff import diff_runs
from reweigh.lab.runs.score import score_paths
from reweigh.lab.runs.task import Runs, open_task
from reweigh.lab.tasks import BENCHMARKS, Benchmark, find_benchmark, open_benchmark

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "reweigh"


@pytest.fixture
def colors(monkeypatch: pytest.MonkeyPatch, sandbox: None) -> type[Benchmark]:
    """The documented benchmark, found through its entry point."""
    text = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(from reweigh.lab.tasks import Benchmark.*?)```", text, re.S)[0], names)
    plugin = SimpleNamespace(name="colors", load=lambda: names["Colors"])
    found = {"reweigh.benchmarks": [plugin]}
    monkeypatch.setattr(registry, "entry_points", lambda group: found.get(group, []))
    return find_benchmark("colors")


@pytest.fixture(autouse=True)
def few_records_may_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reweigh.lab.enough.RECORDS", 6)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(6):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
    return folder


def scored(folder: Path, said: str, *more: str) -> Any:
    append_jsonl(folder / "said.jsonl", [{"id": i, "response": said} for i in range(6)])
    command = ["eval", "score", str(folder / "said.jsonl"), "-b", "colors", "-o", str(folder / "out"), *more]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output + str(done.exception)
    return done


def test_it_is_scored_and_compared_under_its_own_titles(
    colors: type[Benchmark], images: Path, tmp_path: Path
) -> None:
    done = scored(tmp_path / "base", "red and blue")
    assert "Wrong colors ↓" in done.stdout
    scored(tmp_path / "better", "red and red", "--option", f"images={images}")
    results = read_json(tmp_path / "base" / "out" / "results.json")
    assert results["results"]["colors"]["wrong_colors,none"] == 50
    assert results["higher_is_better"]["colors"] == {"wrong_colors": False, "colors": None}
    page = (tmp_path / "better" / "out" / "report.html").read_text()
    assert "Color words: said" in page
    assert "<b>0.0 %</b>" in page  # a share has its unit, a number has none and the digits it wants
    assert "<b>2.00</b>" in page
    assert page.count("data:image/jpeg") == 6  # the default names of an integer's image

    command = ["eval", "diff", str(tmp_path / "base" / "out"), str(tmp_path / "better" / "out")]
    shown = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "diff.html")])
    assert shown.exit_code == 0, shown.output + str(shown.exception)
    line = next(line for line in shown.stdout.splitlines() if "Wrong colors" in line)
    assert line.split()[-1] == "better"
    assert "Color words: out against out" in (tmp_path / "diff.html").read_text()


def test_it_is_recorded_in_a_notebook(colors: type[Benchmark], images: Path, tmp_path: Path) -> None:
    task = open_task("colors", images, limit=4)
    assert [record.id for record in task.records] == [0, 1, 2, 3]
    runs = Runs(task, {"id": "org/model"})
    for name, text in (("one", "blue"), ("two", "red")):
        answer(runs, lambda batch, text=text: [Answer(text)] * len(batch.records), tmp_path / name)
        score_paths([tmp_path / name])
    record = read_json(tmp_path / "one" / "record.json")["record"]
    assert record["benchmark"] == {"name": "colors", "options": {}, "limit": 4}
    pair = diff_runs(tmp_path / "one", tmp_path / "two")
    assert pair.figures["wrong_colors"].value == -100
    assert pair.titles == ("one", "two")
    assert pair.first.image_finder()(2) == images / "2.png"


def test_decoders_are_compared_on_it(colors: type[Benchmark], images: Path, tmp_path: Path) -> None:
    command = ["compare", "world", "-m", "base", "-b", "colors", "--data", str(images), "--limit", "1"]
    done = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output + str(done.exception)
    latex = (tmp_path / "out" / "comparison.tex").read_text()
    assert "Color words" in latex
    assert r"Wrong colors $\downarrow$ & Colors named &" in latex


def test_no_benchmark_is_named_outside_its_package() -> None:
    """Code that asks for a benchmark by name would have to change when one is added."""
    known = set(BENCHMARKS) - {"toy", "objects"}  # the latter is an ordinary word, too
    for path in sorted(SOURCE.rglob("*.py")):
        inside = path.relative_to(SOURCE)
        outside = inside.parts[0] != "world" and inside.parts[:2] != ("lab", "tasks")
        if not outside or path == SOURCE / "cli" / "app.py":  # app.py names commands
            continue
        if path.is_relative_to(SOURCE / "lab" / "paper") and path.stem in ("measured", "reproduce"):
            continue  # the paper's own tables and protocol, which a new benchmark does not change
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = node.comparators if isinstance(node, ast.Compare) else []
            parts = [key for key in node.keys if key] if isinstance(node, ast.Dict) else parts
            named = {
                leaf.value for part in parts for leaf in ast.walk(part) if isinstance(leaf, ast.Constant)
            }
            assert not named & known, f"{path}, line {node.lineno}"  # type: ignore[attr-defined]


def test_what_is_not_a_benchmark_is_refused_by_name(sandbox: None) -> None:
    class Bare:
        name = "bare"

    class Renamed(Benchmark):
        name = "other"

    BENCHMARKS.add("bare", Bare)  # type: ignore[arg-type]
    BENCHMARKS.add("renamed", Renamed)
    with pytest.raises(InputError, match="'bare'"):
        find_benchmark("bare")
    with pytest.raises(InputError, match="renamed"):
        find_benchmark("renamed")


def test_its_options_are_checked_and_its_summary_of_nothing_is_defined(colors: type[Benchmark]) -> None:
    with pytest.raises(InputError, match="shade"):
        open_benchmark("colors", shade=1)
    summary = open_benchmark("colors").summarize([])
    assert {name: metric.value for name, metric in summary.metrics.items()} == {
        "wrong_colors": None,
        "colors": None,
    }
    json.dumps(summary.to_json())


def test_a_scorer_that_is_missing_says_so() -> None:
    class Silent(Benchmark):
        name = "silent"

        def records(self, *, limit: int | None = None, seed: int = 42) -> list[Any]:
            return []

        @staticmethod
        def figures(counts: Any) -> Any:
            return {}

    with pytest.raises(NotImplementedError, match="score_response"):
        Silent().score_response(SimpleNamespace(id=1, text=""))  # type: ignore[arg-type]
