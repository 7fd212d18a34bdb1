"""Print what sketches change on the embedded world: b(v), the registered set, and CHAIR on evaluation scenes.

python scripts/sketch_effect.py [--scenes 200] [--bits 6,3] [-o FOLDER]     a stopped run goes on in its folder
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reweigh.calibration.result import Calibration
from reweigh.experiments.sketches import BASE, EXACT, FIGURES, Change, answer, differences, sketched
from reweigh.families.load import load
from reweigh.runs.model import describe_model
from reweigh.runs.open import open_task
from reweigh.runs.task import Runs
from reweigh.tables.table import ReferenceTable
from reweigh.world import operating_point, path, table_path


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--scenes", type=int, default=200, help="evaluation scenes")
    asked.add_argument("--bits", default="6,3", help="bits of the tables that answer")
    asked.add_argument("--batch-size", type=int, default=50)
    asked.add_argument("-o", "--out", type=Path, default=Path("sketch-effect"))
    given = asked.parse_args()
    point = operating_point()
    exact = ReferenceTable.load(table_path(), layer=int(point["layer"]))
    observations = Calibration.load(table_path()).exact()
    changes = {bits: sketched(observations, exact, bits) for bits in (23, 10, 8, 7, 6, 5, 4, 3, 2)}
    tell_tables(exact, changes, len(observations.images))
    if not given.scenes:
        return
    tables = {EXACT: exact}
    tables |= {f"{bits} bits": changes[int(bits)].table for bits in given.bits.split(",")}
    loaded = load(path())
    loaded[0].name_or_path = "reweigh world"
    task = open_task("world", limit=given.scenes, drawings=given.out / "pictures")
    runs = Runs(task, {"id": "world"} | describe_model(*loaded), given.batch_size)
    found = answer(loaded, tables, runs, given.out / "runs", beta=float(point["beta"]))
    say(f"\nCHAIR on {len(task.records)} evaluation scenes, layer {exact.layer}, beta {point['beta']}\n")
    say(f"{'':10}" + "".join(f"{figure:>9}" for figure in FIGURES))
    for name, run in found.items():
        say(f"{name:10}" + "".join(f"{run.summary.metrics[figure].value:9.2f}" for figure in FIGURES))
    tell_differences("base", differences(found, BASE, [name for name in found if name != BASE]))
    tell_differences(
        "exact", differences(found, EXACT, [name for name in found if name not in (BASE, EXACT)])
    )


def tell_tables(exact: ReferenceTable, changes: dict[int, Change], images: int) -> None:
    """Print the tables' differences to the exact one, with the bounds they state."""
    say(
        f"table of {images} images, layer {exact.layer}: b0 = {exact.scale:.6g}, {len(exact)} tokens registered\n"
    )
    say(
        f"{'bits':>4} {'registered':>10} {'undecided':>9} {'lost':>5} {'gained':>6} {'b(v) mean':>10} {'largest':>8} "
        f"{'bound':>8} {'ranks':>6} {'b0':>9} {'bound':>8}"
    )
    for bits, one in changes.items():
        error_bounds = one.error_bounds
        say(
            f"{bits:4} {len(one.table):10} {len(error_bounds['undecided']):9} {one.lost:5} {one.gained:6} {one.mean:10.3%} "
            f"{one.largest:8.3%} {error_bounds['value_error']:8.3%} {error_bounds['rank_error']:6.2f} {one.scale:+9.4%} "
            f"{error_bounds['scale_error']:8.3%}"
        )


def tell_differences(first: str, found: dict[str, dict[str, object]]) -> None:
    """Print paired differences with their intervals."""
    say(f"\nminus {first}, with paired 95% intervals over images")
    for name, metrics in found.items():
        shown: Sequence[str] = [
            f"{figure} {metrics[figure].value:+.2f} [{metrics[figure].low:+.2f}, {metrics[figure].high:+.2f}]"
            for figure in FIGURES
        ]
        say(f"{name:10}" + "  ".join(shown))


def say(line: str) -> None:
    """Write a line."""
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
