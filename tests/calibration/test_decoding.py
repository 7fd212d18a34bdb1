"""Which of a checkpoint's generation settings belong to a calibration's record."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import GenerationConfig, WatermarkingConfig

import twin
from checkpoints import picture
from reweigh.calibration.settings import NEUTRAL, greedy_settings
from reweigh.files.artifacts import to_json

CHANGES = {
    "repetition_penalty": 1.3,
    "encoder_repetition_penalty": 1.2,
    "no_repeat_ngram_size": 1,
    "encoder_no_repeat_ngram_size": 1,
    "min_length": 52,
    "min_new_tokens": 3,
    "max_time": 1e-9,
    "bad_words_ids": [[5], [6, 7]],
    "sequence_bias": {(5,): -2.0, (4, 6): 1.5},
    "suppress_tokens": (3, 4),
    "begin_suppress_tokens": [9],
    "forced_eos_token_id": [2],
    "exponential_decay_length_penalty": (1, 1.2),
    "guidance_scale": 1.5,
    "watermarking_config": WatermarkingConfig(bias=3.0),
}


def test_every_setting_is_tried_below():
    assert set(CHANGES) == set(NEUTRAL)


def test_nothing_is_recorded_of_a_checkpoint_that_sets_nothing():
    assert greedy_settings(GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=0)) == {}
    library = GenerationConfig(**GenerationConfig._get_default_generation_params())
    assert greedy_settings(library) == {}


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_neutral_value_is_nothing(name):
    for value in (None, *NEUTRAL[name]):
        config = GenerationConfig()
        setattr(config, name, value)
        assert greedy_settings(config) == {}


def test_what_greedy_decoding_overrides_is_not_recorded():
    config = GenerationConfig(
        do_sample=True, temperature=0.3, top_k=5, top_p=0.9, num_beams=4, max_new_tokens=9
    )
    assert greedy_settings(config) == {}


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_comes_back_from_its_page_as_it_was(name):
    config = GenerationConfig()
    setattr(config, name, CHANGES[name])
    found = greedy_settings(config)
    assert list(found) == [name]
    assert json.loads(to_json(found)) == found


def test_the_order_of_biases_does_not_matter():
    one, other = (
        GenerationConfig(sequence_bias=bias) for bias in ({(5,): 1.0, (4,): 2.0}, {(4,): 2.0, (5,): 1.0})
    )
    assert greedy_settings(one) == greedy_settings(other)


@pytest.fixture(scope="module")
def case(checkpoint):
    return twin.case(checkpoint("llava"))


@pytest.fixture(scope="module")
def scores(case):
    """Logits of a greedy answer before the model's processors, and after those of a set of options."""
    inputs = dict(
        case.processor(text=[twin.prompt(case.processor)], images=[picture(1)], return_tensors="pt")
    )

    def generate(**options):
        with torch.no_grad():
            out = case.model.generate(
                **inputs,
                max_new_tokens=4,
                do_sample=False,
                output_scores=True,
                return_dict_in_generate=True,
                **options,
            )
        return torch.stack(out.scores)

    return generate


@pytest.mark.parametrize("name", CHANGES)
def test_a_recorded_setting_does_change_greedy_decoding(scores, name):
    assert not torch.equal(scores(**{name: CHANGES[name]}), scores())
