"""Cost: what the method adds to decoding, and what kept evidence takes.

Latency and memory are those of a finished ``reweigh speed -o STUDY/speed``: timings differ from run to run, so no study
takes them. Bytes of evidence follow from the vocabulary: one float32 for each token and layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reweigh.files.artifacts import read_json, sha256_json
from reweigh.paper.analyses.words import show
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.study import ESTIMATE, Column, Row, Study, estimate

FOLDER, FILE = "speed", "speed.json"
VARIANTS = ("greedy", "cached evidence", "online evidence")


class Cost(Study):
    """Latency ratios, peak memory and bytes of evidence."""

    name = "cost"
    title = "Cost"
    reproduces = "Tab. efficiency-accounting"
    draws = False
    columns = (
        Column("quantity", "text", "what is measured"),
        Column("case", "text", "the model it was measured on"),
        *ESTIMATE,
        Column("unit", "text", "its unit"),
    )

    def inputs(self, material: Material) -> dict[str, str]:
        return {"speed": sha256_json(found)} if (found := read_speed(material)) else {}

    def rows(self, material: Material) -> list[Row]:
        model = str(material.evaluation.record["identity"].get("model_id", ""))
        size = sum(
            (material.evaluation.folder / shard["name"]).stat().st_size
            for shard in material.evaluation.shards
        )
        rows: list[Row] = [
            _row(
                "evidence of one image and layer", model, 4.0 * material.evaluation.vocab_size / 1024, "KiB"
            ),
            _row("study corpus, one image", model, size / max(len(material.evaluation), 1) / 1024, "KiB"),
        ]
        for figure in (read_speed(material) or {}).get("figures", []):
            if figure["part"] != "generation" or figure["variant"] not in VARIANTS:
                continue
            if figure["ratio"] is not None:
                rows.append(
                    _row(f"latency, {figure['variant']}", figure["case"], figure["ratio"], "x greedy")
                )
            if figure["memory_mib"] is not None:
                rows.append(
                    _row(f"peak memory, {figure['variant']}", figure["case"], figure["memory_mib"], "MiB")
                )
        return rows

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        lines = [f"Kept evidence takes {rows[0]['value']:.1f} KiB for each image and layer."]
        ratios = [row for row in rows if row["unit"] == "x greedy"]
        lines += [
            f"{row['quantity']} ({row['case']}): {show(row, digits=3)} times greedy decoding."
            for row in ratios[:2]
        ]
        if not ratios:
            lines.append(
                f"Latency was not measured: run `reweigh speed -o STUDY/{FOLDER}`, then this study again."
            )
        return lines


def read_speed(material: Material) -> dict[str, Any] | None:
    """The finished measurement beside the runs, if there is one."""
    if material.rerun is None or not (path := material.rerun.folder.parent / FOLDER / FILE).is_file():
        return None
    found: dict[str, Any] = read_json(path)
    return found


def _row(quantity: str, case: str, value: Any, unit: str) -> Mapping[str, Any]:
    from reweigh.estimate import Estimate

    number = Estimate(*value) if isinstance(value, list) else float(value)
    return {"quantity": quantity, "case": case, **estimate(number), "unit": unit}
