"""Attach ReWEIGH to a model and call its own ``generate`` as before.

python examples/own_generate.py
"""

import reweigh
from reweigh.world import path, table_path
from reweigh.world.scenes import scene

# The embedded model; any transformers vision-language model and a table made for it will do.
model, processor = reweigh.load(path())
picture = scene("evaluation", index=0).image()

rw = reweigh.attach(model, processor, table=table_path())
print(rw)

inputs = rw.prepare([picture], ["Please describe this image in detail."])
length = inputs["input_ids"].shape[1]


def say(output) -> str:
    return processor.batch_decode(output[:, length:], skip_special_tokens=True)[0].strip()


print("base:   ", say(model.generate(**inputs, max_new_tokens=110, do_sample=False)))
with rw:
    print("ReWEIGH:", say(model.generate(**inputs, max_new_tokens=110, do_sample=False)))
