"""The random checkpoint that is timed inside vLLM is one that transformers loads, too."""

from __future__ import annotations

import pytest

from bench.vllm import vllm_figures
from bench.vllm_subject import PROMPT, save_llava
from reweigh.errors import MissingExtraError
from reweigh.speed.timing import Rounds


def test_the_random_checkpoint_loads_and_sees_its_picture(tmp_path):
    import numpy as np
    from PIL import Image

    from reweigh.families.load import load

    save_llava(tmp_path / "model", width=128, blocks=2, side=2)
    model, processor = load(tmp_path / "model", device="cpu")
    picture = Image.fromarray(np.zeros((28, 28, 3), np.uint8))
    inputs = processor(text=PROMPT, images=picture, return_tensors="pt")
    assert (inputs["input_ids"] == model.config.image_token_id).sum() == 4
    assert model(**inputs).logits.shape[-1] == 32000


def test_without_vllm_it_is_said_what_to_install():
    pytest.importorskip("numpy")
    try:
        import vllm  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtraError, match="vllm"):
            next(vllm_figures(Rounds(1)))
