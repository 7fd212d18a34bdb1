"""Find the words of a given text that the picture does not support. Nothing is generated or edited.

python examples/unsupported_words.py
"""

import reweigh
from reweigh import world

model, processor = reweigh.load(world.path())
text = "A street with a truck, a fire hydrant, a giraffe and a surfboard."
checked = reweigh.check(model, processor, world.picture(129), text, table=world.table_path())
print(text)
for word in checked.words():
    if word.ratio is not None and word.state() != "not judged":
        print(f"{word.text:12} {word.state():12} {word.ratio:.0%} of its usual evidence")
