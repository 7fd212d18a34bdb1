"""How much code a reader has to follow for one prefill and for one decoding step.

A walk counts the distinct functions of ``src/reweigh`` that are called between the moment the model's ``forward`` is
entered and the moment it returns edited logits, in ``generate`` inside ``with rw:``, without a trace, and the distinct
files they are in. Generator expressions, comprehensions and lambdas belong to the function that holds them; methods that
``dataclass`` writes are not in a file. The prefill is the second one of a session: the first also proves the lens.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

import reweigh
from reweigh import world
from reweigh.families.load import load
from reweigh.world.scenes import scene

SOURCE = str(Path(reweigh.__file__).parent)

PREFILL = (46, 14)
STEP = (6, 3)
"""The most functions and files of each. Fewer would mean guards, beams, image bounds or kernels folded into one another."""


def walks(model, inputs, tokens):
    """The functions called in each forward of a generation: file, function and how often."""
    found = []

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<"):
            found[-1][f"{code.co_filename[len(SOURCE) + 1 :]}:{code.co_qualname}"] += 1

    def start(*_):
        found.append(Counter())
        sys.setprofile(note)

    handles = [
        model.register_forward_pre_hook(start, prepend=True),
        model.register_forward_hook(lambda *_: sys.setprofile(None)),
    ]
    try:
        with torch.no_grad():
            model.generate(**inputs, max_new_tokens=tokens, do_sample=False)
    finally:
        sys.setprofile(None)
        for handle in handles:
            handle.remove()
    return found


@pytest.fixture(scope="module")
def found():
    model, processor = load(world.path())
    rw = reweigh.attach(model, processor, table=world.table_path())
    picture = scene("evaluation", 3).image()
    rw.describe(picture, max_new_tokens=2)
    with rw:
        return walks(model, rw.prepare([picture], ["What is in the image?"]), 3)


@pytest.mark.parametrize(("number", "most"), [(0, PREFILL), (1, STEP)], ids=["prefill", "step"])
def test_a_walk_stays_short(found, number, most):
    walk = found[number]
    files = {name.partition(":")[0] for name in walk}
    told = "\n".join([f"{len(walk)} functions in {len(files)} files:", *walk])
    assert "intervene.py:ReWEIGH.edit" in walk
    assert (len(walk) <= most[0], len(files) <= most[1]) == (True, True), told
