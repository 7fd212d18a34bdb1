"""How much code a reader has to follow: to attach, from ``with rw:`` to the first token, and for one further step.

A walk counts the distinct functions of ``src/reweigh`` that are called, in how many files. Generator expressions,
comprehensions and lambdas belong to the function that holds them; methods that ``dataclass`` writes are not in a file. The
first token is the second one of a session, because the first also proves the lens; entering and leaving the block are part
of it. Run with ``-s`` to see the walks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import reweigh
from reweigh import world
from reweigh.world.scenes import scene

SOURCE = str(Path(reweigh.__file__).parent)

MOST = {"attach": (100, 27), "first token": (104, 27), "step": (6, 3)}
"""The most functions and files of each walk. Most of attaching is finding out which model it is; most of entering a block,
whether it changed since."""


@contextmanager
def noted(walk: dict[str, None]) -> Iterator[None]:
    """Note every function of the package that is called."""

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<"):
            walk[f"{code.co_filename[len(SOURCE) + 1 :]}:{code.co_qualname}"] = None

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def walk_of(function: Callable[[], object]) -> list[str]:
    walk: dict[str, None] = {}
    with noted(walk):
        function()
    return list(walk)


@pytest.fixture(scope="module")
def walks():
    model, processor = reweigh.load(world.path())
    table = world.table_path()
    rw = reweigh.attach(model, processor, table=table)  # imports are no part of a walk
    found = {"attach": walk_of(lambda: reweigh.attach(model, processor, table=table))}
    picture = scene("evaluation", 3).image()
    rw.describe(picture, max_new_tokens=2)
    inputs = rw.prepare([picture], ["What is in the image?"])

    def generate(tokens):
        with torch.no_grad():
            model.generate(**inputs, max_new_tokens=tokens, do_sample=False)

    def first_token():
        with rw:
            generate(1)

    found["first token"] = walk_of(first_token)
    steps: list[dict[str, None]] = []

    def begin(*_):
        steps.append({})
        blocks.append(noted(steps[-1]))
        blocks[-1].__enter__()

    def end(*_):
        blocks.pop().__exit__(None, None, None)

    blocks: list = []
    with rw:
        handles = [
            model.register_forward_pre_hook(begin, prepend=True),
            model.register_forward_hook(end),
        ]
        generate(3)
        for handle in handles:
            handle.remove()
    found["step"] = list(steps[1])
    return found


@pytest.mark.parametrize("name", MOST)
def test_a_walk_stays_short(walks, name):
    walk, most = walks[name], MOST[name]
    files = {function.partition(":")[0] for function in walk}
    told = "\n  ".join([f"{name}: {len(walk)} functions in {len(files)} files", *walk])
    sys.stderr.write(f"\n{told}\n")
    if name != "attach":
        assert "intervene.py:ReWEIGH.edit" in walk
    assert (len(walk) <= most[0], len(files) <= most[1]) == (True, True), told
