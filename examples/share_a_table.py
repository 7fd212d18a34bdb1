"""Calibrate on unlabeled pictures, save the table, and load it again as somebody else would.

python examples/share_a_table.py
"""

import tempfile
from pathlib import Path

import reweigh
from reweigh import world

model, processor = reweigh.load(world.path())
pictures = [(f"scene-{number}", world.picture(number, split="calibration")) for number in range(100)]

with tempfile.TemporaryDirectory() as folder:
    # The same call resumes if it is stopped; a table worth sharing needs about 500 pictures.
    reweigh.calibrate(
        model, processor, pictures, out=Path(folder) / "table", batch_size=20, max_new_tokens=110
    )
    table = reweigh.ReferenceTable.from_pretrained(Path(folder) / "table")
    print(table)
    # table.push_to_hub("you/your-table") shares it; attach(..., table="you/your-table") finds it there.

    rw = reweigh.attach(model, processor, table=table, beta=3.5)  # `reweigh tune` chooses beta for your model
    with rw.using(beta=0):
        print("base:   ", rw.describe(world.picture(25)))
    print("ReWEIGH:", rw.describe(world.picture(25)))
