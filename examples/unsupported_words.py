"""Find the words of a given text that the picture does not support. Nothing is generated or edited.

python examples/unsupported_words.py
"""

import reweigh
from reweigh.world import path, table_path
from reweigh.world.scenes import scene

model, processor = reweigh.load(path())
shown = scene("evaluation", index=0)
present, absent = sorted(shown.objects)[0], "elephant"
text = f"The image shows a {present}, an {absent} and a submarine."

checked = reweigh.check(model, processor, shown.image(), text, table=table_path())
for word in checked.words():
    share = "" if word.ratio is None else f"{word.ratio:.0%} of its usual evidence"
    print(f"{word.text:12} {word.state():12} {share}")
