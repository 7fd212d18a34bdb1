"""Measure the figures that README quotes, and write them there.

    python scripts/figures.py          # describe the scenes and write tools/figures.json, then README's table
    python scripts/figures.py --table  # only write README's table from tools/figures.json

Base and ReWEIGH describe evaluation scenes of three seeds that no choice was made on, at the shipped operating point.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README, KEPT = ROOT / "README.md", ROOT / "tools" / "figures.json"
SEEDS, SCENES, BATCH = (1, 2, 3), 400, 50
COLUMNS = {"chair_s": "CHAIR_S ↓", "chair_i": "CHAIR_I ↓", "recall": "Recall ↑", "f1": "F1 ↑"}
ROWS = ("base", "ReWEIGH", "difference")
BEGIN, END = "<!-- figures: scripts/figures.py -->", "<!-- /figures -->"


def measure() -> dict[str, Any]:
    """Describe and score the scenes: each figure of base, ReWEIGH and their difference as [value, low, high]."""
    from reweigh.attached import attach
    from reweigh.families.load import load
    from reweigh.lab.bootstrap import paired_difference
    from reweigh.lab.tasks.chair.metrics import figures, summarize_metrics
    from reweigh.lab.tasks.world import MAX_NEW_TOKENS, score_scene
    from reweigh.progress import progress
    from reweigh.rivals import decoder
    from reweigh.text import DESCRIBE
    from reweigh.world import path, table_path
    from reweigh.world.scenes import scenes

    model, processor = load(path(), device="cpu")
    reweigh = attach(model, processor, table=table_path())
    shown = [scene for seed in SEEDS for scene in scenes("evaluation", SCENES, seed)]

    def items(session: Any, name: str) -> list[Any]:
        found = []
        for start in progress(range(0, len(shown), BATCH), name, total=-(-len(shown) // BATCH)):
            part = shown[start : start + BATCH]
            inputs = session.prepare([scene.image() for scene in part], [DESCRIBE] * len(part))
            texts = [answer.text for answer in session.respond(inputs, max_new_tokens=MAX_NEW_TOKENS)]
            found += [score_scene(scene, text) for scene, text in zip(part, texts, strict=True)]
        return found

    base, edited = items(decoder("base", model, processor), "base"), items(reweigh, "ReWEIGH")
    rows = {
        "base": summarize_metrics(base),
        "ReWEIGH": summarize_metrics(edited),
        "difference": paired_difference(base, edited, figures),
    }
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "scenes": len(shown),
        "seeds": list(SEEDS),
        "layer": reweigh.layer,
        "beta": reweigh.beta,
        "rows": {
            name: {
                key: [round(number, 4) for number in (row[key].value, row[key].low, row[key].high)]
                for key in COLUMNS
            }
            for name, row in rows.items()
        },
    }


def table(kept: dict[str, Any]) -> str:
    """README's table and the sentence above it."""
    rows = kept["rows"]
    before, after = rows["base"]["chair_i"][0], rows["ReWEIGH"]["chair_i"][0]
    lines = [
        f"On {kept['scenes']:,} drawn scenes of the embedded world ({kept['date']}; layer {kept['layer']}, beta "
        f"{kept['beta']:g}, chosen on other scenes), {round(before)} of 100 named objects are not there; with ReWEIGH it is "
        f"{round(after)} ({100 * (after - before) / before:+.0f}%). Brackets are 95% image-bootstrap intervals; the "
        "last row is paired.",
        "",
        f"| decoding | {' | '.join(COLUMNS.values())} |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for name in ROWS:
        sign = "+" if name == "difference" else ""
        found = (rows[name][key] for key in COLUMNS)  # a JSON file has an order of its own
        cells = (f"{value:{sign}.1f} [{low:{sign}.1f}, {high:{sign}.1f}]" for value, low, high in found)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(page: str, kept: dict[str, Any]) -> str:
    """README with the table between its marks."""
    parts = re.split(f"({re.escape(BEGIN)}|{re.escape(END)})", page)
    if len(parts) != 5:
        raise SystemExit(f"README.md must hold {BEGIN} and {END} once each")
    return "".join([*parts[:2], f"\n{table(kept)}\n", *parts[3:]])


def main() -> None:
    """Measure unless told otherwise, and write."""
    from reweigh.files.artifacts import read_json, write_json, write_text

    if "--table" not in sys.argv[1:]:
        write_json(KEPT, measure())
    write_text(README, with_table(README.read_text(encoding="utf-8"), read_json(KEPT)))


if __name__ == "__main__":
    main()
