"""Loading by folder or id: what cannot be loaded is named, with what to do."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from reweigh import world
from reweigh.errors import InputError
from reweigh.families import load as load_module
from reweigh.families.load import best_device, load


@pytest.fixture
def copied(checkpoint, tmp_path):
    return shutil.copytree(checkpoint("llava"), tmp_path / "model")


def test_a_folder_for_inference_on_the_cpu_in_float32(checkpoint):
    model, processor = load(checkpoint("llava"), device="cpu")
    assert type(model).__name__ == "LlavaForConditionalGeneration"
    assert not model.training
    assert model.dtype == torch.float32
    assert processor.tokenizer is not None


def test_a_dtype_by_name(checkpoint):
    assert load(str(checkpoint("llava")), dtype="bfloat16", device="cpu")[0].dtype == torch.bfloat16


def stored_as(dtype, path, folder):
    model, processor = load(path, dtype=dtype, device="cpu")
    for part in (model, processor):
        part.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("fast", [True, False])
def test_the_checkpoints_own_dtype_unless_the_cpu_is_slow_in_it(
    checkpoint, tmp_path, monkeypatch, caplog, dtype, fast
):
    folder = stored_as(dtype, checkpoint("llava"), tmp_path / "model")
    features = {"bfloat16": "avx512_bf16", "float16": "avx512_fp16"}
    known = {"avx2": True, features[dtype]: fast}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    assert load(folder, device="cpu")[0].dtype == (getattr(torch, dtype) if fast else torch.float32)
    said = f"{folder} is stored in {dtype}, which this CPU computes slowly: loading it in float32"
    assert (said in caplog.text) is not fast
    caplog.clear()
    assert load(folder, device="cpu", dtype=dtype)[0].dtype == getattr(torch, dtype)
    assert not caplog.text


def test_the_embedded_model_is_computed_in_float32_everywhere(monkeypatch):
    monkeypatch.setattr(load_module, "best_device", lambda: "meta")  # any accelerator
    assert load(world.path())[0].dtype == torch.float32


def test_an_unknown_dtype_is_refused_before_loading(tmp_path):
    with pytest.raises(InputError, match="int4") as caught:
        load(tmp_path, dtype="int4")
    assert "bfloat16" in str(caught.value)


@pytest.mark.parametrize("name", ["no-one/no-such-model", "/no/such/folder", "not an id"])
def test_an_unknown_model_is_named(name):
    with pytest.raises(InputError, match=name) as caught:
        load(name)
    assert "Hub" in str(caught.value)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "processor_config.json"]
)
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_checkpoint_is_named(copied, name, damage):
    file = copied / name
    data = file.read_bytes()
    file.unlink()
    if damage == "cut":
        file.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="load"):
        load(copied)


def test_a_text_only_model_is_refused(copied):
    (copied / "config.json").write_text(
        json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]})
    )
    with pytest.raises(InputError, match="Unrecognized"):
        load(copied)


def test_weights_of_other_shapes_are_refused(copied):
    config = json.loads((copied / "config.json").read_text())
    config["text_config"]["vocab_size"] += 8
    (copied / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="load"):
        load(copied)


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_there_is_named(checkpoint, device):
    with pytest.raises(InputError, match=f"'{device}'") as caught:
        load(checkpoint("llava"), device=device)
    assert "cpu" in str(caught.value)


def test_the_best_device_can_hold_a_tensor():
    assert torch.zeros(1, device=best_device()).sum() == 0
