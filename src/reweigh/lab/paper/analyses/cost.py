"""Cost: what the method adds to decoding, and how much memory cached evidence takes.

Latency and memory are those of a finished ``reweigh compare MODEL -m base,reweigh -o STUDY/comparison``: timings differ
from run to run, so no study takes them. Bytes of evidence follow from the vocabulary: one float32 for each token and layer.
"""

from __future__ import annotations

from collections.abc import Iterator

from reweigh.files.artifacts import sha256_json
from reweigh.lab.arms.compare.cost import CACHED, LATENCY, MEMORY
from reweigh.lab.frame import Frame
from reweigh.lab.paper.material import Material, model_name
from reweigh.lab.paper.study import Filled, Study, row
from reweigh.lab.views.report import FRAME, read_frame

FOLDER = "comparison"
METHOD = "reweigh"
LAYERS = 3
"""Layers whose evidence the paper caches."""
EVIDENCE, CORPUS = f"evidence of one image, {LAYERS} layers", "study corpus, one image"
TIMES = "x greedy"
COSTS = {
    CACHED: "latency, cached evidence",
    LATENCY: "latency, online evidence",
    MEMORY: "peak memory, online evidence",
}


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
        found = read_costs(material)
        return {} if found is None else {"costs": sha256_json(found.to_json())}

    def compute(self, material: Material) -> Frame:
        corpus = material.evaluation
        model = str(corpus.record["identity"].get("model_id", ""))
        size = sum((corpus.folder / shard["name"]).stat().st_size for shard in corpus.shards)
        rows = [
            row(LAYERS * 4.0 * corpus.vocab_size / 1024, quantity=EVIDENCE, case=model, unit="KiB"),
            row(size / max(len(corpus), 1) / 1024, quantity=CORPUS, case=model, unit="KiB"),
        ]
        if (costs := read_costs(material)) is not None:
            timed = str(costs.about["model"])
            for figure, quantity in COSTS.items():
                found = costs.get(benchmark=None, arm=METHOD, figure=figure, against=None)
                if found is not None:
                    case = model_name(timed)
                    rows.append(row(found, quantity=quantity, case=case, unit=TIMES))
        return Frame(rows)

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        size = frame.one(quantity=EVIDENCE).value
        lines = [f"Cached evidence of {LAYERS} layers takes {size:.1f} KiB per image."]
        ratios = frame.pick(unit=TIMES).rows
        lines += [
            f"{str(one['quantity']).capitalize()} ({one['case']}): {one.estimate.text(digits=3)} times greedy decoding."
            for one in ratios
        ]
        if not ratios:
            lines.append(
                "Latency was not measured: run "
                f"`reweigh compare MODEL -b chair -m base,{METHOD} -o STUDY/{FOLDER}`, then this study again."
            )
        return lines

    def entries(self, frame: Frame) -> Iterator[Filled]:
        """Fill in the studied model's own numbers; those of another model stand on the study's page only."""
        model = str(frame.rows[0]["case"])
        yield Filled("cache per image (KiB)", "ReWEIGH", frame.one(quantity=EVIDENCE))
        for one in frame.pick(unit=TIMES, case=model):
            yield Filled(str(one["quantity"]), "ReWEIGH", one.estimate)


def read_costs(material: Material) -> Frame | None:
    """Read the frame of the finished comparison beside the runs, if there is one."""
    folder = material.beside(FOLDER)
    return read_frame(folder) if (folder / FRAME).is_file() else None
