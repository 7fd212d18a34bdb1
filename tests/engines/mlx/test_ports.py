"""What is known of mlx-vlm's families without MLX, and that nothing of it is imported unless it is used."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from reweigh.engines.mlx.ports import PORTS, computed_images, computed_settings, port_of
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import is_mlx
from reweigh.families.catalogue import FAMILIES


def config(name):
    return SimpleNamespace(model_type=name)


@pytest.mark.parametrize("name", sorted({*FAMILIES, "some_new_family"} - {"llava", "qwen2_5_vl"}))
def test_families_are_served_or_refused_by_name(name):
    if name in PORTS and PORTS[name].refused is None:
        assert port_of(config(name)) is PORTS[name]
        return
    with pytest.raises(UnsupportedError, match=name):
        port_of(config(name))


def test_settings_are_those_that_are_computed_with():
    own = SimpleNamespace(
        text_config=SimpleNamespace(rope_theta=1e6, rms_norm_eps=1e-5), vision_config=SimpleNamespace()
    )
    settings = {
        "vision_config": {"hidden_act": "gelu", "layer_norm_eps": 1e-5},
        "text_config": {"rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3"}},
    }
    found = computed_settings(PORTS["llava"], own, settings)
    assert found["vision_config"] == {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
    assert found["text_config"]["rms_norm_eps"] == 1e-5
    assert found["text_config"]["rope_parameters"] == {"rope_theta": 1e6, "rope_type": "default"}
    assert "hidden_act" not in found["text_config"]  # what the checkpoint lacks is not compared


def test_image_settings_of_qwen_are_those_of_the_pil_processor():
    own = {"backend": "Qwen3VLImageProcessor", "min_pixels": 4, "max_pixels": 9, "patch_size": 14}
    found = computed_images(own)
    assert found["size"] == {"shortest_edge": 4, "longest_edge": 9}
    assert found["backend"] == "pil"
    assert computed_images({"backend": "pil"}) == {"backend": "pil"}


def test_a_model_is_told_by_its_class_alone():
    kind = type("Model", (type("Module", (dict,), {"__module__": "mlx.nn.layers.base"}),), {})
    assert is_mlx(kind())
    assert not is_mlx(SimpleNamespace())


def test_nothing_of_mlx_is_imported_unless_used():
    code = (
        "import sys, reweigh, reweigh.attached, reweigh.calibration.calibrate; reweigh.attach, reweigh.calibrate;"
        "assert not [name for name in sys.modules if name.partition('.')[0] in ('mlx', 'mlx_vlm')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
