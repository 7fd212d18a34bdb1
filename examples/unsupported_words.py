"""Find the words of a given text that the picture does not support. Nothing is generated or edited.

python examples/unsupported_words.py
"""

import reweigh
from reweigh.families.load import load
from reweigh.world import path, table_path
from reweigh.world.scenes import scene

model, processor = load(path())
shown = scene("evaluation", index=0)
present, absent = sorted(shown.objects)[0], "elephant"
text = f"The image shows a {present} and an {absent}."

checked = reweigh.check(model, processor, shown.image(), text, table=table_path())
for word in checked.words():
    if word.strength is not None:
        print(
            f"{word.text:12} strength {word.strength:.2f}  {'lacks evidence' if word.strength >= 0.5 else ''}"
        )
