"""A decoder of your own: a class with one method, used like every other.

python examples/own_decoder.py
"""

import reweigh
from reweigh.families.load import load
from reweigh.rivals import DECODERS, Decoder
from reweigh.world import path
from reweigh.world.scenes import scene


class Without(Decoder):
    """Never says one word."""

    title = "Without"

    def __init__(self, anatomy, processor=None, *, word):
        super().__init__(anatomy, processor)
        self.tokens = processor.tokenizer.encode(f" {word}", add_special_tokens=False)

    def edit(self, forward):
        logits = forward.logits.clone()
        logits[..., self.tokens[0]] = float("-inf")
        return logits


DECODERS.add("without", Without)
model, processor = load(path())
picture = scene("evaluation", index=0).image()
print("base:   ", reweigh.decoder("base", model, processor).describe(picture, max_new_tokens=110))
print(
    "without:", reweigh.decoder("without", model, processor, word="the").describe(picture, max_new_tokens=110)
)
