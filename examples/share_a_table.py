"""Calibrate on unlabeled pictures, save the table, and load it again as somebody else would.

python examples/share_a_table.py
"""

import tempfile
from pathlib import Path

import reweigh
from reweigh.world import path
from reweigh.world.scenes import scenes

model, processor = reweigh.load(path())
pictures = [(scene.id, scene.image()) for scene in scenes("calibration", 40)]

with tempfile.TemporaryDirectory() as folder:
    # The same call resumes if it is stopped; a table needs a few hundred pictures to be worth sharing.
    reweigh.calibrate(
        model, processor, pictures, out=Path(folder) / "table", batch_size=20, max_new_tokens=110
    )
    table = reweigh.ReferenceTable.from_pretrained(Path(folder) / "table")
    print(table)
    # table.push_to_hub("you/your-table") shares it; attach(..., table="you/your-table") finds it there.

    rw = reweigh.attach(model, processor, table=table)
    print(rw.describe(next(iter(scenes("evaluation", 1))).image(), max_new_tokens=110))
