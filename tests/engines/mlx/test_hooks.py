"""The hooks' own bookkeeping, with a stand-in for MLX where a machine has none."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest
import torch

from reweigh.engines.rows import Batch, Row
from reweigh.errors import UnsupportedError


@pytest.fixture
def hooks(monkeypatch):
    """The module, imported with an MLX that computes nothing."""
    for name in [name for name in sys.modules if name.startswith("reweigh.engines.mlx")]:
        monkeypatch.delitem(sys.modules, name)
    core, utils = ModuleType("mlx.core"), ModuleType("mlx.utils")
    vars(core).update(array=SimpleNamespace, float32=1, float16=2, bfloat16=3)
    vars(utils).update(tree_flatten=list)
    package = ModuleType("mlx")
    vars(package).update(core=core, utils=utils)
    for name, module in (("mlx", package), ("mlx.core", core), ("mlx.utils", utils)):
        monkeypatch.setitem(sys.modules, name, module)
    yield importlib.import_module("reweigh.engines.mlx.hooks")
    for name in [name for name in sys.modules if name.startswith("reweigh.engines.mlx")]:
        del sys.modules[name]


def test_a_stream_that_left_its_block_is_refused_whatever_other_threads_do(hooks):
    own = hooks.MlxHooks(SimpleNamespace(model=object()))
    prompt = hooks.Turn(None, [], 4, start=0)
    other = threading.Thread(target=lambda: own._embed(lambda *given: None, None))
    other.start()
    other.join()
    with pytest.raises(UnsupportedError, match="left before"):
        own._check_outside(Batch(1, [Row()], turn=prompt), 5)
    own._embed(lambda *given: None, None)  # a new prompt of this thread's is the base model's
    own._check_outside(Batch(1, [Row()], turn=prompt), 5)


def test_states_that_are_shorter_than_the_prompt_are_refused(hooks):
    """mlx-vlm may one day compute some blocks for the last column only, as transformers does."""
    decoder = SimpleNamespace(edit=lambda forward: None)
    run = SimpleNamespace(decoder=decoder, layers=frozenset({1}))
    own = hooks.MlxHooks(SimpleNamespace(model=object()))
    for columns, refused in ((4, False), (1, True)):
        prompt = hooks.Turn(None, [(2, None)], 4, start=0, states={1: [torch.zeros(1, columns, 3)]})
        batch = Batch(1, [Row()], turn=prompt)
        batch.extend(0, [prompt.visual], 1)
        with pytest.raises(UnsupportedError, match="after block 1") if refused else contextlib.nullcontext():
            own._edit(run, batch, 3, torch.zeros(1, 1, 5))
