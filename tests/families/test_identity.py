"""Which model it is: by content, not by name, the same in the types it may be loaded in, another after any change."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForImageTextToText

import stand_ins
import twin
from checkpoints import FAMILIES, VOCABULARY
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.identity import identify, reading_hash, tokenizer_hash
from reweigh.families.settings import image_settings, setting_text
from reweigh.families.weights import named_weights
from reweigh.files.artifacts import to_json
from reweigh.tables.key import ModelKey, differences, weights_of
from sameness import assert_differ, assert_same


@pytest.fixture(scope="module")
def llava(checkpoint):
    return twin.case(checkpoint("llava"))


@pytest.fixture
def model(llava):
    return copy.deepcopy(llava.model)


def of(model, processor=None):
    return identify(find_anatomy(model), processor)


def test_it_says_what_was_loaded(llava, checkpoint):
    found = of(llava.model, llava.processor)
    assert found.model_id == str(checkpoint("llava"))
    assert (found.architecture, found.blocks, found.vocab_size) == (
        "LlavaForConditionalGeneration",
        4,
        VOCABULARY,
    )
    assert found.weights["tensors"] == len(list(llava.model.named_parameters())) == 98
    assert found.weights["numbers"] == sum(one.numel() for one in llava.model.parameters())
    assert len(found.tokenizer) == 64
    assert found.adapters == {}
    assert found.images["backend"] == "pil"
    assert found.images["size"] == {"shortest_edge": 28}
    assert found.config["vision_feature_layer"] == -2
    assert json.loads(json.dumps(found.to_json())) == asdict(found)
    assert len(found.summary()["weights"]) == 64


@pytest.mark.parametrize("family", FAMILIES)
def test_a_renamed_copy_is_the_same_model(family, checkpoint, tmp_path):
    case = twin.case(checkpoint(family))
    case.model.save_pretrained(tmp_path / "copy")
    copied = AutoModelForImageTextToText.from_pretrained(tmp_path / "copy")
    assert of(copied).model_id != of(case.model).model_id
    assert replace(of(copied), model_id="") == replace(of(case.model), model_id="")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
def test_a_checkpoint_keeps_its_identity_in_every_type(family, stored, checkpoint, tmp_path):
    AutoModelForImageTextToText.from_pretrained(checkpoint(family), dtype=stored).save_pretrained(tmp_path)
    found = [
        of(AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=dtype))
        for dtype in (torch.float16, torch.float32, torch.bfloat16)
    ]
    found.append(of(twin.case(checkpoint(family)).model))
    for one in found:
        for other in found:
            assert_same(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_noise_in_any_one_parameter_is_another_model(llava, model, dtype):
    model.to(dtype)
    before = of(llava.model)
    for name, parameter in model.named_parameters():
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter += 0.05 * (parameter.abs() + 1e-3) * torch.randn_like(parameter).sign()
        [told] = of(model).differences(before.to_json())
        assert "sampled weights differ" in told, name
        parameter.data = kept
    assert_same(of(model), before)


@pytest.mark.parametrize("part", ["norm", "head"])
def test_other_weights_are_another_model(llava, model, part):
    anatomy = find_anatomy(model)
    with torch.no_grad():
        (anatomy.norm if part == "norm" else anatomy.head).weight.mul_(1.05)
    assert_differ(of(model), of(llava.model))


def test_every_family_has_its_own(checkpoint, llava):
    other = twin.case(checkpoint("llava_next"))
    found = of(other.model).differences(of(llava.model).to_json())
    assert found[0].startswith("architecture")
    assert any("weights: table 98 tensors" in line and "model 99 tensors" in line for line in found)


def test_adapters_count_where_they_act(llava, model):
    plain = of(llava.model)
    layers = stand_ins.inject(model)
    first = of(model)
    assert first.adapters == {"default": [2.0]}
    assert "adapters: table none, model default (scale 2.0)" in first.differences(plain.to_json())
    for layer in layers:
        layer.add("other", seed=5)
    assert_same(of(model), first)  # an inactive adapter does not count
    for layer in layers:
        layer.set_adapter("other")
    switched = of(model).differences(first.to_json())
    assert "adapters: table default (scale 2.0), model other (scale 2.0)" in switched
    for layer in layers:
        layer.set_adapter("default")
        layer.scaling["default"] = 0.5
    assert of(model).differences(first.to_json()) == [
        "adapters: table default (scale 2.0), model default (scale 0.5)"
    ]
    for layer in layers:
        layer.scaling["default"] = 2.0
    with torch.no_grad():
        layers[1].lora_B["default"].weight.mul_(1.5)
    [told] = of(model).differences(first.to_json())
    assert "sampled weights differ" in told
    for layer in layers:
        layer._disable_adapters = True
    assert_same(of(model), plain)


def test_merged_adapters_act_through_the_weight(llava, model):
    plain = of(llava.model)
    for layer in stand_ins.inject(model):
        layer.merge()
    merged = of(model)
    assert merged.adapters == {}
    [found] = merged.differences(plain.to_json())
    assert "sampled weights differ" in found


def test_wrappers_leave_no_trace(llava, model):
    assert_same(of(torch.compile(model, backend="eager")), of(llava.model))
    assert_same(of(stand_ins.PeftModel(model, stand_ins.config())), of(llava.model))


@pytest.mark.parametrize("head_only", [True, False])
def test_quantised_weights_are_other_weights(llava, model, head_only):
    found = of(stand_ins.quantised(model, head_only=head_only))
    assert_same(found, of(stand_ins.quantised(model, head_only=head_only)))
    told = "; ".join(found.differences(of(llava.model).to_json()))
    assert "weights: table 98 tensors" in told
    with torch.no_grad():
        model.lm_head.weight.mul_(2)  # the same integers with another scale
    rescaled = of(stand_ins.quantised(model, head_only=head_only))
    assert any("sampled weights differ" in line for line in rescaled.differences(found.to_json()))


def test_tied_weights_agree_with_an_untied_copy(model):
    model.lm_head.weight = model.model.language_model.embed_tokens.weight
    tied = of(model)
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    assert_same(of(model), tied)
    assert tied.weights["tensors"] == 98


class Hook:
    """As much of accelerate's hook as loading needs."""

    def __init__(self, weights_map):
        self.weights_map = weights_map


@pytest.mark.parametrize("whole", [False, True])
def test_offloaded_weights_are_read_through_their_hook(llava, model, whole):
    before = of(llava.model)
    part = model.model.language_model
    if whole:
        part._hf_hook = Hook({name: value.detach().clone() for name, value in part.named_parameters()})
    for module in part.modules():
        own = dict(module.named_parameters(recurse=False))
        if not whole:
            values = {name: value.detach().clone() for name, value in own.items()}
            module._hf_hook = type("Sequence", (), {"hooks": [Hook(None), Hook(values)]})()
        for name, value in own.items():
            module._parameters[name] = nn.Parameter(value.to("meta"))
    assert_same(of(model), before)
    assert reading_hash(find_anatomy(model), None) == reading_hash(find_anatomy(llava.model), None)
    for module in part.modules():
        vars(module).pop("_hf_hook", None)
    with pytest.raises(UnsupportedError, match=r"embed_tokens\.weight") as caught:
        of(model)
    assert "load" in caught.value.hint


@pytest.mark.parametrize("where", ["cpu", "disk"])
def test_models_offloaded_by_accelerate(llava, model, where, tmp_path):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    from reweigh.families.identity import Watch

    if where == "cpu":
        accelerate.cpu_offload(model, execution_device="cpu")
    else:
        accelerate.disk_offload(model, tmp_path, execution_device="cpu")
    assert model.lm_head.weight.is_meta
    assert find_anatomy(model).vocab_size == VOCABULARY
    assert_same(of(model), of(llava.model))
    watch = Watch(model)
    model.generate(**llava.inputs([1]), max_new_tokens=2, do_sample=False)
    assert watch.changed() is None
    if where == "cpu":
        model.lm_head._hf_hook.weights_map["weight"].data.add_(1)
        assert_differ(of(model), of(llava.model))


def test_the_tokenizer_is_its_vocabulary(llava):
    known = tokenizer_hash(llava.processor)
    assert tokenizer_hash(llava.processor.tokenizer) == known

    class Fake:
        def __init__(self, vocabulary):
            self.vocabulary = vocabulary

        def get_vocab(self):
            return self.vocabulary

    vocabulary = llava.processor.tokenizer.get_vocab()
    assert tokenizer_hash(Fake(dict(reversed(vocabulary.items())))) == known
    one, two = list(vocabulary)[:2]
    swapped = {**vocabulary, one: vocabulary[two], two: vocabulary[one]}
    assert tokenizer_hash(Fake(swapped)) != known
    assert tokenizer_hash(None) == tokenizer_hash(object()) == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("size", {"shortest_edge": 56}),
        ("crop_size", {"height": 14, "width": 14}),
        ("image_std", [1.0, 1.0, 1.0]),
        ("rescale_factor", 0.5),
        ("resample", 0),
        ("do_center_crop", False),
    ],
)
def test_every_image_setting_counts(llava, name, value):
    before = of(llava.model, llava.processor)
    processor = copy.deepcopy(llava.processor)
    setattr(processor.image_processor, name, value)
    found = of(llava.model, processor).differences(before.to_json())
    assert len(found) >= 1
    assert all(line.startswith(f"the image processor's {name}") for line in found)
    anatomy = find_anatomy(llava.model)
    assert reading_hash(anatomy, processor) != reading_hash(anatomy, llava.processor)


def test_settings_of_the_processor_and_its_backend_count(llava):
    processor = copy.deepcopy(llava.processor)
    processor.patch_size = 14
    assert image_settings(processor)["patch_size"] == 14
    assert image_settings(llava.processor)["patch_size"] == 7

    class Torchvision(type(processor.image_processor)):
        pass

    Torchvision.__mro__[0].__name__ = "TorchvisionBackend"
    processor.image_processor.__class__ = Torchvision
    assert image_settings(processor)["backend"] == "torchvision"
    assert image_settings(None) == image_settings(processor.tokenizer) == {}


def test_settings_that_shape_the_states_count_and_others_do_not(llava, model):
    before = of(llava.model)
    model.config.vision_feature_layer = -1
    assert of(model).differences(before.to_json()) == [
        "the configuration's vision_feature_layer: table -2, model -1"
    ]
    model.config.vision_feature_layer = -2
    model.config.text_config.rope_parameters["rope_theta"] = 5e5
    assert "rope_theta: table 10000.0, model 500000.0" in of(model).differences(before.to_json())[0]
    model.config.text_config.rope_parameters["rope_theta"] = 10000.0
    model.config.text_config.use_cache = False
    model.config.text_config.pad_token_id = 2
    assert_same(of(model), before)


def test_the_reading_hash_is_finer(llava, model):
    known = reading_hash(find_anatomy(llava.model), llava.processor)
    assert reading_hash(find_anatomy(model), llava.processor) == known
    assert reading_hash(find_anatomy(model.to(torch.bfloat16)), llava.processor) != known
    layers = stand_ins.inject(model.to(torch.float32))
    hashes = set()
    for state in (["default"], ["other"]):
        for layer in layers:
            layer.add("other", seed=4)
            layer.set_adapter(state)
        hashes.add(reading_hash(find_anatomy(model), llava.processor))
    assert len(hashes) == 2


def test_the_names_of_the_sides_can_be_chosen(llava, model):
    one = of(llava.model).to_json()
    other = {**one, "blocks": 5}
    assert differences(one, other, sides=("kept", "asked")) == ["blocks: kept 4, asked 5"]


def test_a_table_of_a_large_model_stays_small():
    """LLaVA-1.5-7B has about 700 tensors."""
    samples = {f"{at}": (np.full(8, 0.1, np.float32), 4096 * 11008) for at in range(700)}
    key = ModelKey("org/model", None, "Llava", 32, 32064, weights_of(samples), {}, "", {}, {})
    assert len(to_json(key.to_json())) < 20_000


def test_names_are_those_of_the_checkpoint(llava):
    assert {name for name, _ in named_weights(llava.model)} == set(llava.model.state_dict())


def test_settings_that_json_does_not_know_are_told_apart_setting_text():
    """A single NumPy number reads as it always did, so that tables made with one still belong to their model."""
    assert [setting_text(one) for one in (np.int64(224), np.float32(0.5), torch.tensor(3))] == [
        "224",
        "0.5",
        "3",
    ]
    one, other = (setting_text(np.array([0.5, last])) for last in (0.25, 0.75))
    assert one != other
    assert setting_text(torch.tensor([0.5], dtype=torch.bfloat16)) == setting_text(torch.tensor([0.5]))
    assert setting_text(torch.float32) == "torch.float32"
    assert setting_text(np.mean) == "numpy.mean"
