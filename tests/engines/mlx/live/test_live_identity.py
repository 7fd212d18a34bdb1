"""A table passes between the engines exactly where they compute the same."""

from __future__ import annotations

import json
import shutil

import mlx.core as mx
import mlx.nn as nn
import pytest
import torch
from mlx.utils import tree_flatten
from mlx_vlm import load as load_mlx
from mlx_vlm.utils import load_model

import reweigh
from checkpoints.more import more
from reweigh.engines.mlx.model import find_anatomy, to_torch
from reweigh.errors import InputError, MismatchError, UnsupportedError
from reweigh.families.anatomy import find_anatomy as find_in_transformers
from reweigh.world import path, table_path


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl", "idefics3", "world"])
def test_both_engines_give_one_identity(engines, family):
    both = engines[family]
    expected = find_in_transformers(both.model).identify(both.processor)
    found = find_anatomy(*both.mlx).identify(both.mlx[1])
    assert found.differences(expected.to_json()) == []
    assert found.weights.keys() == expected.weights.keys()


@pytest.mark.parametrize(
    ("family", "word"), [("gemma3", "see each other"), ("internvl", "gelu_pytorch_tanh")]
)
def test_a_family_that_mlx_computes_otherwise_has_tables_of_its_own(engines, family, word, tmp_path):
    both = engines[family]
    with pytest.raises(MismatchError, match=word):
        both.attach()
    shown = [(f"{number}", one) for number, one in enumerate(both.pictures)]
    reweigh.calibrate(
        *both.mlx, shown, layers=[1], max_new_tokens=12, rule="count-1", out=tmp_path, show=False
    )
    rw = both.attach(table=tmp_path, beta=4.0)
    with rw.using(beta=0.0):
        base = rw.answer([both.pictures[0]], ["What is it?"], max_new_tokens=12)[0]
    assert rw.answer([both.pictures[0]], ["What is it?"], max_new_tokens=12)[0].tokens != base.tokens
    with pytest.raises(MismatchError, match=word):
        reweigh.attach(both.model, both.processor, table=tmp_path)


def test_the_embedded_model_names_the_activation():
    model, processor = load_mlx(str(path()))
    with pytest.raises(MismatchError, match=r"hidden_act: table gelu, model quick_gelu"):
        reweigh.attach(model, processor, table=table_path())
    assert reweigh.attach(model, processor, table=table_path(), force=True).layer == 2


def test_a_setting_that_mlx_fills_in_itself_is_named(engines, tmp_path):
    both = engines["llava"]
    folder = tmp_path / "rope"
    shutil.copytree(both.folder, folder, ignore=shutil.ignore_patterns("table"))
    config = json.loads((folder / "config.json").read_text())
    del config["text_config"]["rope_theta"]
    config["text_config"]["rope_parameters"]["rope_theta"] = 5000.0
    (folder / "config.json").write_text(json.dumps(config))
    found = find_anatomy(*load_mlx(str(folder))).identify(both.mlx[1])
    assert found.config["text_config"]["rope_parameters"]["rope_theta"] == 10000.0


def test_quantized_weights_are_other_weights(engines):
    both = engines["world"]
    model, processor = load_mlx(str(both.folder))
    nn.quantize(model.language_model, group_size=32, bits=8)
    with pytest.raises(MismatchError, match="weights: table 123 tensors"):
        reweigh.attach(model, processor, table=both.table)
    rw = reweigh.attach(model, processor, table=both.table, force=True)
    assert rw.describe(both.pictures[0], max_new_tokens=8)


def test_a_changed_weight_is_noticed(engines):
    both = engines["llava"]
    model, processor = load_mlx(str(both.folder))
    rw = reweigh.attach(model, processor, table=both.table)
    model.language_model.lm_head.weight = model.language_model.lm_head.weight * 1.5
    with pytest.raises(MismatchError, match="changed after it was attached"):
        rw.describe(both.pictures[0], max_new_tokens=4)


def test_sixteen_bits_are_the_same_weights_with_another_lens(engines):
    both = engines["llava"]
    model, processor = load_mlx(str(both.folder))
    model.update(nn.utils.tree_map(lambda one: one.astype(mx.bfloat16), model.parameters()))
    assert {one.dtype for _, one in tree_flatten(model.parameters())} == {mx.bfloat16}
    with pytest.raises(MismatchError, match="lens dtype: table float32, model bfloat16"):
        reweigh.attach(model, processor, table=both.table)
    rw = reweigh.attach(model, processor, table=both.table, force=True)
    with rw.using() as request:
        rw.describe(both.pictures[0], max_new_tokens=4)
    assert request.evidence[0].dtype == "bfloat16"


def test_llava_next_is_refused_by_name(engines):
    with pytest.raises(UnsupportedError, match="llava_next"):
        engines["llava_next"].attach()


def test_an_mlx_model_needs_its_processor(engines):
    both = engines["llava"]
    with pytest.raises(InputError, match="processor"):
        reweigh.attach(both.mlx[0], table=both.table)


def test_smolvlm_gives_the_logits_of_transformers(tmp_path):
    """As a bare model: its processor in transformers needs packages that the tests do not have."""
    model, inputs = more("smolvlm")
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    config["text_config"]["rope_theta"] = config["text_config"]["rope_parameters"]["rope_theta"]
    file.write_text(json.dumps(config))
    with torch.no_grad():
        expected = model(**inputs).logits
    own = load_model(tmp_path)
    arrays = {name: mx.array(value.numpy()) for name, value in inputs.items()}
    found = own(arrays["input_ids"], arrays["pixel_values"])
    torch.testing.assert_close(to_torch(found.logits), expected, rtol=0, atol=1e-4)
