"""The official layer sets."""

from __future__ import annotations

import pytest

import reweigh
from checkpoints import BLOCKS
from reweigh.errors import InputError
from reweigh.rivals.revisit import _indices
from reweigh.rivals.tools.layers import bucket, first_index


def test_official_layer_sets():
    assert bucket("low", 32, False) == list(range(0, 16, 2))
    assert bucket("high", 32, False) == list(range(16, 32, 2))
    assert bucket("low", 40, False) == list(range(0, 20, 2))
    assert bucket("high", 40, False) == list(range(20, 40, 2))
    assert bucket("low", 60, False) == list(range(0, 20, 2))
    assert bucket("high", 80, False) == list(range(60, 80, 2))
    assert bucket("low", 32, True)[0] == 2
    assert (first_index(2, True), first_index(1, True)) == (0, 0)
    assert _indices("last", 32, False) == [32]
    assert _indices("all", 28, False) == [*range(0, 28, 2), 28]
    assert len(_indices("all", 28, False)) == 15
    assert _indices("high", 32, False) == [*range(16, 32, 2), 32]
    assert _indices([*range(0, 28, 2), 28], 28, False) == _indices("all", 28, False)


@pytest.mark.parametrize("layers", [[], [99], [1, BLOCKS + 1], [-1], [-2, 1], "middle"])
@pytest.mark.parametrize("name", ["dola", "deco", "vista", "revisit"])
def test_layers_that_the_model_does_not_have_are_refused(name, layers, loaded):
    with pytest.raises(InputError, match="layers") as refusal:
        reweigh.decoder(name, *loaded("llava"), layers=layers)
    assert isinstance(layers, str) or f"to {BLOCKS}" in refusal.value.hint
