"""The method on one page and the package write the same tables and the same words, on every family of the paper."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import reweigh
import twin
from checkpoints import FAMILIES, picture
from reweigh import world
from reweigh.families.prompts import build_inputs
from reweigh.world.scenes import scene

PAGE = Path(__file__).parents[2] / "examples" / "one_file.py"
DESCRIBE, ASK = "Please describe this image in detail.", "What is it?"
STEPS = 12


@pytest.fixture(scope="module")
def page():
    return SimpleNamespace(**runpy.run_path(str(PAGE)))


def same_table(ours, theirs):
    assert theirs.tokens.tolist() == list(ours.references)
    assert theirs.references.tolist() == list(ours.references.values())
    assert theirs.b0 == ours.b0


def same_tokens(page, model, processor, inputs, table, ours, beta, **options):
    """Compare the two, and return whether the edit changed anything."""

    def seeded(generate, *args, **more):
        torch.manual_seed(1)
        with torch.no_grad():
            return generate(*args, **more, **options)

    base = seeded(model.generate, **inputs)
    expected = seeded(page.generate, model, inputs, ours, beta)
    found = seeded(reweigh.attach(model, processor, table=table, beta=beta, force=True).generate, **inputs)
    assert found.tolist() == expected.tolist()
    return base.tolist() != expected.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_familys_table_and_words_are_the_packages(page, family, checkpoint):
    case = twin.case(checkpoint(family))
    model, processor = case.model, case.processor
    pictures, layer = [picture(seed) for seed in range(8)], 1
    batches = [build_inputs(model, processor, pictures[at : at + 4], [DESCRIBE] * 4) for at in (0, 4)]
    ours = page.calibrate(model, batches, layer, STEPS)
    options = {"max_new_tokens": STEPS, "batch_size": 4, "layers": [layer], "show": False}
    table = reweigh.calibrate(model, processor, pictures, **options).tables[layer]
    assert len(table) > 0
    same_table(ours, table)

    made_up = twin.table(model.get_output_embeddings().weight.shape[0], layer=layer)
    ours = page.Table(
        layer, made_up.b0, dict(zip(made_up.tokens.tolist(), made_up.references.tolist(), strict=True))
    )
    changed = []
    for seed in range(4):
        shown = [picture(100 + seed), None if family != "instructblip" and seed % 2 else picture(200 + seed)]
        inputs = build_inputs(model, processor, shown, [DESCRIBE, ASK])
        for sampling in ({"do_sample": False}, {"do_sample": True, "top_k": 0}):
            more = {"max_new_tokens": STEPS, **sampling}
            changed.append(same_tokens(page, model, processor, inputs, made_up, ours, 2.0, **more))
    assert any(changed)


def test_they_agree_about_real_scenes(page):
    model, processor = reweigh.load(world.path())
    table = world.table_path()
    read = reweigh.attach(model, processor, table=table).table
    ours = page.Table(
        read.layer,
        read.b0,
        dict(zip(read.tokens.tolist(), np.float64(read.references).tolist(), strict=True)),
    )
    for first in (3, 40):
        shown = [scene("evaluation", index=first + at).image() for at in range(2)]
        inputs = build_inputs(model, processor, shown, [DESCRIBE] * 2)
        same_tokens(page, model, processor, inputs, table, ours, 3.5, do_sample=False, max_new_tokens=110)
