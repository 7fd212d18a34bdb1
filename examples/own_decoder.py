"""A decoder of your own: a class with one method, used like every other.

python examples/own_decoder.py
"""

import reweigh
from reweigh import world
from reweigh.rivals import DECODERS, Decoder


class Without(Decoder):
    """Never begins a given word."""

    title = "Without a word"

    def __init__(self, anatomy, processor=None, *, word="traffic"):
        super().__init__(anatomy, processor)
        self.token = processor.tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0]

    def edit(self, forward):
        logits = forward.logits.clone()
        logits[..., self.token] -= 100  # finite: a decoder returns numbers for every token
        return logits


DECODERS.add("without", Without)
model, processor = reweigh.load(world.path())
for name, options in (("base", {}), ("without", {"word": "traffic"}), ("without", {"word": "person"})):
    text = reweigh.decoder(name, model, processor, **options).describe(world.picture(129))
    print(name, *options.values(), ":", text)
