"""The outer cases: what the commands say of a few scenes of the embedded world.

Each function runs one command and returns a flat mapping from a meaning to a value, e.g. "reweigh/chair_i/value": 8.3. A
redesign that changes a command or a JSON layout changes the reading here; the frozen values stay.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import runpy
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import reweigh
from goldens.cases import table_values
from goldens.values import FOLDERS, scratch
from reweigh.families.load import load
from reweigh.lab.paper.measured import read_results
from reweigh.lab.paper.pages import write_paper
from reweigh.world import path, table_path

SCENES = 6
LAYER, BETA = 2, 3.5
TYPE = ("--model-option", "dtype=float32")
METRICS = ("chair_s", "chair_i", "recall", "f1")
ARMS = (
    "global,shuffled,mismatched,cyclic,blind,no-abstention,bidirectional,unbounded,count-5,count-10,probability,"
    "mean-probability,mean-probability-budget,zscore,standardized-probability,zscore-matched"
)
READING = ("scale", "tokens", "references", "detection", "allocation", "confidence", "grid", "cases")
"""Studies that read the corpus only."""
DECODING = ("rescaling", "sizes", "corpora", "rules", "specificity", "scaling")
"""Studies that describe images again. `cost` is not frozen: it measures time."""

Values = dict[str, Any]


@functools.cache
def work() -> Path:
    """The folder in which all commands of this process work."""
    return scratch("commands")


def run(*arguments: Any) -> Any:
    """``python -m reweigh ... --json`` in this process, and the JSON it printed."""
    shown, before, code = io.StringIO(), sys.argv, None
    sys.argv = ["reweigh", *map(str, arguments), "--json", "--quiet"]
    try:
        with contextlib.redirect_stdout(shown):
            runpy.run_module("reweigh", run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = before
    assert not code, f"{arguments} ended with {code}"
    return json.loads(shown.getvalue())


# Inputs that several commands share.


@functools.cache
def pictures(split: str, count: int) -> Path:
    out = work() / f"pictures-{split}-{count}"
    run("world", "draw", "-o", out, "--count", count, "--split", split)
    return out


@functools.cache
def calibration(count: int, *more: str) -> Path:
    """Tables of two layers."""
    out = work() / f"calibration-{count}"
    run("calibrate", "world", pictures("calibration", count), "-l", 2, "-l", 3, "-o", out, *TYPE, *more)
    return out


@functools.cache
def answered(decoder: str) -> Path:
    """A run folder."""
    out = work() / f"run-{decoder}"
    run("eval", "run", "world", "-b", "world", "--limit", SCENES, "--decoder", decoder, "-o", out, *TYPE)
    return out


# Cases: what is run, and where each value is found.


def draw() -> Values:
    """Which pictures are drawn; their mean colors, so that a changed drawing shows."""
    from PIL import Image

    found: Values = {}
    for split in ("calibration", "evaluation"):
        for file in sorted(pictures(split, 4).glob("*.png")):
            with Image.open(file) as image:
                small = image.convert("RGB").resize((2, 2), Image.Resampling.BOX)
                found[f"{split}/{file.stem}"] = [list(image.size), *map(list, small.get_flattened_data())]
    return found


def calibrate() -> Values:
    """A calibration of 12 pictures."""
    return read_tables(calibration(12, "--rule", "count-3", "--max-new-tokens", "24"))


def read_tables(out: Path) -> Values:
    tables = {layer: reweigh.ReferenceTable.from_pretrained(out, layer=layer) for layer in (2, 3)}
    return {f"layer {layer}": table_values(table) for layer, table in tables.items()}


def describe() -> Values:
    """Texts with the shipped table, greedy, sampled and by beams, and the unedited ones."""
    files = sorted(pictures("evaluation", 4).glob("*.png"))
    found: Values = {}
    for name, options in {
        "greedy": ["--compare"],
        "sampled": ["--temperature", "0.8", "--seed", "7"],
        "strong": ["--beta", "8", "--layer", "3"],
    }.items():
        for one in run("describe", "world", *files, *TYPE, *options):
            key = f"{name}/{Path(one['image']).stem}"
            found[f"{key}/text"] = one["reweigh"]
            if "base" in one:
                found[f"{key}/base"] = one["base"]
    session = reweigh.attach(*load(path(), dtype="float32"), table=table_path())
    for file in files:
        found[f"beams/{file.stem}/text"] = session.describe(file, num_beams=3)
    return found


def demo() -> Values:
    data = run("demo", "--quick", "--scenes", 10, "-o", work() / "demo.html")
    return {f"{arm}/{name}": value for arm in ("base", "reweigh") for name, value in data[arm].items()}


def evaluate() -> Values:
    """Metrics of two runs, their texts and their difference."""
    return read_runs({decoder: answered(decoder) for decoder in ("base", "reweigh")})


def read_runs(folders: Mapping[str, Path]) -> Values:
    found: Values = {}
    for decoder, folder in folders.items():
        summary = run("eval", "score", folder)["summary"]
        found[f"{decoder}/n"] = summary["n"]
        put_estimates(found, decoder, summary["metrics"])
        for line in (folder / "rows.jsonl").read_text().splitlines():
            one = json.loads(line)
            found[f"{decoder}/text/{one['id']}"] = one["response"]
    data = run("eval", "diff", *folders.values())
    put_estimates(found, "difference", data["difference"])
    put_estimates(found, "mentions", data["mentions"])
    for item in data["items"]:
        for fate in ("introduced", "kept", "removed"):
            found[f"mentions/{item['id']}/{fate}"] = item[fate]
    return found


def compare() -> Values:
    """Figures of each method; cost is a time and left out."""
    return read_comparison(work() / "comparison")


def read_comparison(out: Path, *more: Any) -> Values:
    methods = "base,sampling,vcd,reweigh"
    data = run("compare", "world", "-m", methods, "--limit", SCENES, "-o", out, *TYPE, *more)
    found: Values = {}
    for row in data["rows"]:
        method = row["runs"]["world"].rpartition("/")[2]
        found[f"{method}/regime"] = row["regime"]
        for name, cell in row["figures"].items():
            group, _, figure = name.rpartition("/")
            if group != "Cost":
                key = f"{method}/{figure.lower().replace(' ', '_')}"
                found |= {f"{key}/{part}": cell[part] for part in ("value", "low", "high", "place", "shade")}
    return found


@functools.cache
def tuned() -> Any:
    """A search where the study of the grid looks for it."""
    return search(work() / "study" / "tuning")


def search(out: Path, *more: Any) -> Any:
    options = ["--table", calibration(40), "--no-record", "--layers", LAYER, "--betas", "1.0,3.0"]
    return run("tune", "world", *options, "--limit", SCENES, "-o", out, *TYPE, *more)


def tune() -> Values:
    """The base, the grid of one layer, and the choice."""
    return read_tuning(tuned())


def read_tuning(data: Any) -> Values:
    found: Values = {"chosen/layer": data["layer"], "chosen/beta": data["beta"]}
    for point in [data["base"], *data["grid"]]:
        key = f"layer {point['layer']}, beta {point['beta']:g}" if "layer" in point else "base"
        for name in METRICS:
            low, high = point["intervals"][name]
            found |= {
                f"{key}/{name}/value": point[name],
                f"{key}/{name}/low": low,
                f"{key}/{name}/high": high,
            }
        if "layer" in point:
            found |= {f"{key}/gain": point["gain"], f"{key}/eligible": point["eligible"]}
            put_estimates(found, f"{key}/difference", point["difference"])
    return found


def ablate() -> Values:
    """Every arm, the readouts included."""
    options = ["--table", calibration(40), "--calibration", pictures("calibration", 40)]
    options += ["--layer", LAYER, "--beta", BETA, "--arms", ARMS, "--limit", 4]
    with patch("reweigh.lab.arms.ablate.run.SHUFFLES", 2):
        data = run("ablate", "world", *options, "-o", work() / "ablation", *TYPE)
    found: Values = {f"registered/{arm}": count for arm, count in data["registered"].items()}
    seen: dict[str, int] = {}
    for row in data["arms"]:
        seen[row["arm"]] = seen.get(row["arm"], 0) + 1
        key = row["arm"] if seen[row["arm"]] == 1 else f"{row['arm']} {seen[row['arm']]}"
        put_estimates(found, key, {name: row[name] for name in (*METRICS, "length", "mentions")})
        put_estimates(found, f"{key}/difference", row["difference"])
        found[f"{key}/fire"] = row["fire_candidates"]
        found[f"{key}/edits"] = row["edits"] and {
            name: row["edits"][name] for name in ("candidates", "edits", "escapes")
        }
    for bound, one in data["shuffled"].items():
        named = {
            "fire": one["fire_candidates"],
            **{name: value for name, value in one.items() if "_steps" not in name},
        }
        found |= {
            f"shuffled/{bound}/{name}": value for name, value in named.items() if name != "fire_candidates"
        }
    return found


def studied(names: Iterable[str]) -> Values:
    """The tables of some studies; the CSV files must say the same as the JSON."""
    tuned()
    options = ["--table", calibration(40), "--calibration", pictures("calibration", 40)]
    options += ["--layer", LAYER, "--beta", BETA, "--limit", 30]
    with patch("reweigh.lab.bootstrap.RESAMPLES", 20):
        data = run("study", ",".join(names), *options, "-o", work() / "study", *TYPE)
    found: Values = {}
    for study in data["studies"]:
        name = study["study"]
        assert_same_rows(work() / "study" / name / "table.csv", study["rows"])
        rows = [named(row) for row in sorted(study["rows"], key=lambda row: row.get("against") == "own")]
        if name == "grid":
            rows = wide(rows)
        if name == "cases":
            rows = [{**row, "score": row["value"]} for row in rows if row.pop("quantity") is None]
            rows = [{key: value for key, value in row.items() if key != "candidate"} for row in rows]
        rows = [row for row in rows if row.get("quantity") != "unregistered %"]  # not frozen
        found[f"{name}/rows"] = len(rows)
        left_out = ("reason", "value", "low", "high") if name == "cases" else ("reason",)
        for at, row in enumerate(rows):
            texts = [key for key in study["keys"] if key != "note" and isinstance(row.get(key), str)]
            words = " | ".join(row[key] for key in texts)
            kept = {key: value for key, value in row.items() if key not in (*texts, *left_out)}
            found[f"{name}/{at} {words}"] = kept
    return found


def named(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose quantity says what it is a difference to."""
    against = row.get("against")
    quantity = {} if against is None else {"quantity": f"{row['quantity']} minus {against}"}
    return {key: value for key, value in {**row, **quantity}.items() if key != "against"}


def wide(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each point of a grid, with its figures side by side."""
    points: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        about = {key: row[key] for key in ("layer", "beta", "note")}
        points.setdefault(tuple(about.values()), about)[row["quantity"]] = row["value"]
    return list(points.values())


def assert_same_rows(file: Path, rows: list[Mapping[str, Any]]) -> None:
    with file.open(newline="") as lines:
        written = list(csv.DictReader(lines))
    assert len(written) == len(rows), file
    for line, row in zip(written, rows, strict=True):
        for name, value in row.items():
            same = float(line[name]) == float(value) if isinstance(value, float) else line[name] == str(value)
            assert same or (value is None and line[name] == ""), (file, name, line[name], value)


def paper() -> Values:
    """Published values, and beside them those of frozen folders; nothing is run."""
    folders = [FOLDERS / name for name in ("study", "ablation", "comparison")]
    data = write_paper(read_results(folders), work() / "paper")
    found: Values = {}
    for label, one in data.items():
        put_cells(found, f"{label}/published", one["published"])
        for measured in one["measured"]:
            put_cells(found, label, {"measured": measured["values"]})
            found[f"{label}/orders"] = measured["orders"]
    return found


def put_cells(found: Values, key: str, sources: Mapping[str, Any]) -> None:
    for source, cells in sources.items():
        for at, cell in enumerate(cells):
            name = f"{key}/{source}/{at} {cell['row']} | {cell['metric']}"
            found[name] = [cell["value"], cell["low"], cell["high"]]


# Tables as they were written when the values were frozen.


def reopened_tables() -> Values:
    """The same values as ``calibrate``, from the frozen calibration."""
    return read_tables(FOLDERS / "calibration")


def put_estimates(found: Values, key: str, metrics: Mapping[str, Any]) -> None:
    """Value and interval of each metric."""
    for name, one in metrics.items():
        found |= {f"{key}/{name}/{part}": one[part] for part in ("value", "low", "high")}


OUTER: dict[str, Callable[[], Values]] = {
    "outer/draw": draw,
    "outer/calibrate": calibrate,
    "outer/describe": describe,
    "outer/demo": demo,
    "outer/eval": evaluate,
    "outer/compare": compare,
    "outer/tune": tune,
    "outer/ablate": ablate,
    "outer/study-reading": functools.partial(studied, READING),
    "outer/study-decoding": functools.partial(studied, DECODING),
    "outer/paper": paper,
}
SLOW = {"outer/ablate", "outer/study-reading", "outer/study-decoding"}
