"""Describe one scene with several decoders.

python examples/compare_decoders.py
"""

import reweigh
from reweigh import world

model, processor = reweigh.load(world.path())
print("In the scene: a bicycle, two cars, a truck, a fire hydrant.")
for name, options in [("base", {}), ("deco", {}), ("m3id", {}), ("reweigh", {"table": world.table_path()})]:
    decoder = reweigh.decoder(name, model, processor, **options)
    print(f"{name:8} {decoder.describe(world.picture(129))}")
print("One scene decides nothing: `reweigh compare world` describes 500 and gives intervals.")
