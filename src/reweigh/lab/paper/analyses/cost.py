"""Cost: what the method adds to decoding, and how much memory cached evidence takes.

Latency and memory are those of a finished ``reweigh speed MODEL -o STUDY/speed``: timings differ from run to run, so no
study takes them. Bytes of evidence follow from the vocabulary: one float32 for each token and layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reweigh.files.artifacts import sha256_json
from reweigh.files.seals import read_sealed
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Row
from reweigh.lab.paper.material import EMBEDDED, Material
from reweigh.lab.paper.study import Filled, Study, row

FOLDER, FILE = "speed", "speed.json"
VARIANTS = ("greedy", "cached evidence", "online evidence")
EVIDENCE, CORPUS = "evidence of one image and layer", "study corpus, one image"
TIMES = "x greedy"


class Cost(Study):
    """Latency ratios, peak memory and bytes of evidence."""

    name = "cost"
    title = "Cost"
    labels = ("tab:efficiency-accounting",)
    keys = (
        ("quantity", "what is measured"),
        ("case", "the model it was measured on"),
        ("unit", "its unit"),
    )

    def inputs(self, material: Material) -> dict[str, str]:
        return {"speed": sha256_json(found)} if (found := read_speed(material)) else {}

    def compute(self, material: Material) -> Frame:
        corpus = material.evaluation
        model = str(corpus.record["identity"].get("model_id", ""))
        size = sum((corpus.folder / shard["name"]).stat().st_size for shard in corpus.shards)
        rows = [
            row(4.0 * corpus.vocab_size / 1024, quantity=EVIDENCE, case=model, unit="KiB"),
            row(size / max(len(corpus), 1) / 1024, quantity=CORPUS, case=model, unit="KiB"),
        ]
        for figure in (read_speed(material) or {}).get("figures", []):
            if figure["part"] == "generation" and figure["variant"] in VARIANTS:
                rows += _measured(figure)
        return Frame(rows)

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        lines = [f"Kept evidence takes {frame.one(quantity=EVIDENCE).value:.1f} KiB per image and layer."]
        ratios = frame.pick(unit=TIMES).rows
        lines += [
            f"{str(one['quantity']).capitalize()} ({one['case']}): {one.estimate.text(digits=3)} times greedy decoding."
            for one in ratios[:2]
        ]
        if not ratios:
            lines.append(
                f"Latency was not measured: run `reweigh speed MODEL -o STUDY/{FOLDER}`, then this study again."
            )
        return lines

    def entries(self, frame: Frame) -> Iterator[Filled]:
        """Fill in the studied model's own numbers; those of another model stand on the study's page only."""
        model = str(frame.rows[0]["case"])
        names = {model, Path(model).name, *(["embedded"] if model == EMBEDDED else [])}
        timed = frame.pick(unit=TIMES)
        cases = timed.distinct("case") if timed else []
        own = [case for case in cases if any(str(case).startswith(f"{name} ") for name in names if name)]
        yield Filled("cache per image (KiB)", "ReWEIGH", frame.one(quantity=EVIDENCE))
        for one in timed.pick(case=own[:1]):
            if one["quantity"] != f"latency, {VARIANTS[0]}":
                yield Filled(str(one["quantity"]), "ReWEIGH", one.estimate)


def read_speed(material: Material) -> dict[str, Any] | None:
    """Read the finished measurement beside the runs, if there is one."""
    path = material.beside(FOLDER) / FILE
    return read_sealed(path) if path.is_file() else None


def _measured(figure: dict[str, Any]) -> list[Row]:
    """Return the ratio and the memory of one variant, if they were measured."""
    ratio = None if figure["ratio"] is None else Estimate(*figure["ratio"])
    found = (("latency", ratio, TIMES), ("peak memory", figure["memory_mib"], "MiB"))
    return [
        row(value, quantity=f"{name}, {figure['variant']}", case=figure["case"], unit=unit)
        for name, value, unit in found
        if value is not None
    ]
