"""Describe a few scenes with several decoders and count what is not there.

python examples/compare_decoders.py
"""

import reweigh
from reweigh.lab.tasks import open_benchmark
from reweigh.lab.tasks.base import Response
from reweigh.world import path, table_path

model, processor = reweigh.load(path())
benchmark = open_benchmark("world", scenes=20)
scenes = benchmark.scenes()
pictures = [scene.image() for scene in scenes]

for name, options in [("base", {}), ("deco", {}), ("m3id", {}), ("reweigh", {"table": table_path()})]:
    session = reweigh.decoder(name, model, processor, **options)
    texts = session.describe(pictures, max_new_tokens=110)
    _, summary = benchmark.score(
        [Response(scene.id, text) for scene, text in zip(scenes, texts, strict=True)]
    )
    figures = summary.metrics
    print(f"{name:8} CHAIR_I {figures['chair_i'].value:5.1f}   recall {figures['recall'].value:5.1f}")
print("20 scenes decide nothing: `reweigh compare world` takes 500 and gives intervals.")
