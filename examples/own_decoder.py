"""A decoder of your own: a class with one method, used like every other.

python examples/own_decoder.py
"""

import reweigh
from reweigh.rivals import DECODERS, Decoder
from reweigh.world import path
from reweigh.world.scenes import scene


class SecondThoughts(Decoder):
    """Where the two likeliest tokens are about as likely, says the second one."""

    title = "Second thoughts"

    def __init__(self, anatomy, processor=None, *, margin=0.5):
        super().__init__(anatomy, processor)
        self.margin = margin

    def edit(self, forward):
        best = forward.logits.topk(2, dim=-1)
        is_close = best.values[..., :1] - best.values[..., 1:] < self.margin
        return forward.logits.scatter_add(-1, best.indices[..., :1], -self.margin * is_close)


DECODERS.add("mine", SecondThoughts)
model, processor = reweigh.load(path())
picture = scene("evaluation", index=0).image()
for name in ("base", "mine"):
    print(f"{name}:", reweigh.decoder(name, model, processor).describe(picture))
