"""Every decoder on the embedded model, a real trained one."""

from __future__ import annotations

import pytest
import torch
from random_vectors import random_vectors

import reweigh
from reweigh.errors import ArtifactError
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.rivals import DECODERS


@pytest.fixture(scope="module")
def embedded():
    from reweigh.families.load import load
    from reweigh.world import path
    from reweigh.world.scenes import scene

    try:
        where = path()
    except ArtifactError as error:
        pytest.skip(f"the embedded model is not in this checkout: {error.message}")
    model, processor = load(where, device="cpu")
    pictures = [scene("evaluation", index).image() for index in (0, 1)]
    return model, processor, pictures, build_inputs(model, processor, pictures, [DESCRIBE, DESCRIBE])


@pytest.mark.parametrize("method", [name for name in DECODERS if name != "greedy"])
def test_every_method_says_something_in_its_own_regime(method, embedded):
    model, processor, pictures, inputs = embedded
    options = {"erase": ["zebra"]} if method == "projectaway" else {}
    if method == "halc":
        options = {
            "detect": lambda image, word: [],
            "match": lambda image, texts: [len(text) for text in texts],
        }
    if method in ("asd", "vti", "nullu"):
        options = {"vectors": random_vectors(5, 192, size=0.1), "force": True}
    if method == "reweigh":
        from reweigh.world import operating_point, table_path

        try:
            point = operating_point()
        except ArtifactError as error:
            pytest.skip(f"the embedded model has no operating point yet: {error.message}")
        options = {"table": table_path(), "layer": point["layer"], "beta": point["beta"]}
    attached = reweigh.decoder(method, model, processor, **options)
    with attached.using(pictures=pictures) if method == "halc" else attached:
        regime = getattr(attached.decoder, "regime", {"do_sample": False})
        torch.manual_seed(0)
        output = model.generate(**inputs, **{**regime, "max_new_tokens": 12})
    said = processor.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert len(said) == 2
    assert all(len(text.split()) >= 3 for text in said), said
