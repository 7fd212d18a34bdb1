"""The lens reads what the model says, on the six families and on those beyond them."""

from __future__ import annotations

import pytest
import torch

from checkpoints import FAMILIES, load, picture, prompt
from checkpoints.more import IMAGE, MORE, more
from reweigh.families.anatomy import find_anatomy
from reweigh.families.catalogue import FAMILIES as RECORDS
from reweigh.families.catalogue import family_of
from reweigh.families.positions import layout
from reweigh.testing import assert_lens_parity

pytestmark = pytest.mark.numerics

# DeepStack adds visual features to the stream after the first blocks, where hidden_states do not show them
ADDED_BETWEEN = dict.fromkeys(
    ("qwen3_vl", "qwen3_vl_moe", "qwen3_omni_moe_thinker", "granite_docling"), (0, 1, 2)
) | {"granite4_vision": (1,)}


@pytest.mark.parametrize("family", MORE)
def test_parity_beyond_the_six(family):
    model, inputs = more(family)
    found = assert_lens_parity(model, inputs, between_blocks=ADDED_BETWEEN.get(family, ()))
    assert found.positions > 0
    assert found.between_blocks == ADDED_BETWEEN.get(family, ())


@pytest.mark.parametrize("family", FAMILIES)
def test_parity_of_the_six(family, checkpoint):
    model, processor = load(checkpoint(family))
    inputs = processor(images=picture(1, (70, 50)), text=prompt(processor), return_tensors="pt")
    assert_lens_parity(model, inputs)


@pytest.mark.parametrize("family", MORE)
def test_a_lost_norm_would_be_seen(family, monkeypatch):
    """The random models would prove little if the order of the logits did not depend on the final norm."""
    model, inputs = more(family)
    at = (inputs["input_ids"] == IMAGE)[0]
    with torch.no_grad():
        before = model(**inputs).logits[0, at]
        monkeypatch.setattr(find_anatomy(model).norm, "forward", lambda states: states)
        after = model(**inputs).logits[0, at]
    assert not torch.equal(before.argsort(-1), after.argsort(-1))


@pytest.mark.parametrize(
    "family", [name for name in sorted(MORE) if name in RECORDS and RECORDS[name].pictures]
)
def test_families_with_a_reader_have_a_place_for_every_patch(family):
    model, inputs = more(family)
    row = layout(family_of(model.config), model.config, inputs["input_ids"], inputs)[0]
    places = [place for _, place in row]
    assert None not in places
    assert len(set(places)) == len(places)
    for tile in {place.tile for place in places}:
        seen = [place for place in places if place.tile == tile]
        assert len(seen) == seen[0].rows * seen[0].cols
    held = int((inputs["input_ids"] == IMAGE).sum())
    newlines = {"llava_onevision": 8, "llava_next_video": 4, "granite4_vision": 2}.get(family, 0)
    assert len(row) == held - newlines
