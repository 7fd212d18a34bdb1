"""Attach ReWEIGH to a model and call its own ``generate`` as before.

python examples/own_generate.py
"""

import reweigh
from reweigh import world

model, processor = reweigh.load(world.path())  # the small model in the package, and its table
rw = reweigh.attach(model, processor, table=world.table_path())
# On a GPU, with a table from `reweigh calibrate llava-hf/llava-1.5-7b-hf my-images/ -o my-table`:
# model, processor = reweigh.load("llava-hf/llava-1.5-7b-hf", device="cuda", dtype="bfloat16")
# rw = reweigh.attach(model, processor, table="my-table")
print(rw)

inputs = rw.prepare([world.picture(129)], ["Please describe this image in detail."])
length = inputs["input_ids"].shape[1]


def say(output) -> str:
    return processor.batch_decode(output[:, length:], skip_special_tokens=True)[0].strip()


# The scene has cars, a truck, a bicycle and a fire hydrant; no traffic light, no person.
print("base:   ", say(model.generate(**inputs, max_new_tokens=110, do_sample=False)))
with rw:
    print("ReWEIGH:", say(model.generate(**inputs, max_new_tokens=110, do_sample=False)))
