"""How a request is prepared, and where its visual positions lie."""

from __future__ import annotations

from types import SimpleNamespace as Plain

import pytest

from reweigh.errors import InputError, UnsupportedError
from reweigh.memory import Memory
from reweigh_vllm.capture import visual_positions
from reweigh_vllm.frontend import prepare
from reweigh_vllm.settings import MARK, SHOWN, Settings
from reweigh_vllm.table import _as_called

MODEL = Plain(skip_tokenizer_init=False)
EXACT, RECALL = Settings(table="t"), Settings(table="t", prefix_cache="recall")
BETA = 1.1


def request(extra=None, *, images=True, embeddings=None, **params):
    plain = {"extra_args": extra, "max_tokens": 9, "logprobs": None, "detokenize": True}
    asked = Plain(**{**plain, "skip_reading_prefix_cache": False, **params})
    features = [object()] if images else None
    return Plain(sampling_params=asked, mm_features=features, prompt_embeds=embeddings, cache_salt=None)


def test_an_image_request_is_marked_and_computes_its_prompt():
    given = {"kept": 1}
    one = request(given)
    prepare(one, EXACT, BETA, MODEL)
    assert one.sampling_params.extra_args == {"kept": 1, MARK: 1.1}
    assert one.sampling_params.skip_reading_prefix_cache
    assert given == {"kept": 1}  # the caller's own mapping is left alone


def test_switched_off_and_recalled_requests_read_the_prefix_cache():
    off, recalled, text = request({"reweigh": "off"}), request(), request(images=False)
    prepare(off, EXACT, BETA, MODEL)
    prepare(recalled, RECALL, BETA, MODEL)
    prepare(text, EXACT, BETA, MODEL)
    assert off.sampling_params.extra_args[MARK] == 0.0
    assert recalled.sampling_params.extra_args[MARK] == 1.1
    assert text.sampling_params.extra_args is None
    assert not any(one.sampling_params.skip_reading_prefix_cache for one in (off, recalled, text))


def test_a_prompt_of_embeddings_is_marked_so_that_its_outcome_is_reported():
    one = request(images=False, embeddings=object())
    prepare(one, EXACT, BETA, MODEL)
    assert one.sampling_params.extra_args == {MARK: 1.1}


def test_a_request_that_is_off_may_show_the_evidence_of_its_tokens():
    one = request({"reweigh": "off", "reweigh_evidence": True}, n=1)
    prepare(one, EXACT, BETA, MODEL)
    assert (one.sampling_params.extra_args[MARK], one.sampling_params.extra_args[SHOWN]) == (0.0, True)
    assert one.sampling_params.skip_reading_prefix_cache


@pytest.mark.parametrize(
    ("params", "reason"), [({"n": 2}, "samples"), ({"detokenize": False}, "detokenized"), ({}, "tokenizer")]
)
def test_evidence_of_tokens_is_refused_where_there_is_no_one_text(params, reason):
    one = request({"reweigh_evidence": True}, **{"n": 1, **params})
    with pytest.raises(InputError, match=reason):
        prepare(one, EXACT, BETA, Plain(skip_tokenizer_init=reason == "tokenizer"))


BEAM = {"max_tokens": 1, "logprobs": 4, "detokenize": False}


@pytest.mark.parametrize("settings", [EXACT, RECALL, Settings(table="t", enabled=False)])
def test_a_beam_search_over_a_picture_is_refused(settings):
    """vLLM drops what its request asks, so nobody can tell whether it is to be edited."""
    with pytest.raises(InputError, match="beam search"):
        prepare(request(**BEAM), settings, BETA, MODEL)
    prepare(request(images=False, **BEAM), settings, BETA, MODEL)
    one = request({"reweigh": "off"}, **BEAM)  # it says what it wants, so it is no step of a search
    prepare(one, settings, BETA, MODEL)
    assert one.sampling_params.extra_args[MARK] == 0.0


def test_a_calibration_measures_every_request_from_its_start():
    one = request(**BEAM)
    prepare(one, Settings(observe=(1,)), 0.0, MODEL)
    assert one.sampling_params.extra_args == {MARK: 0.0}
    assert one.sampling_params.skip_reading_prefix_cache


def test_newlines_are_told_apart_by_the_layout_of_the_family():
    config = Plain(
        model_type="llava_next",
        image_token_id=9,
        image_token_index=9,
        vision_config=Plain(image_size=28, patch_size=7),
        image_grid_pinpoints=[[28, 56], [56, 28], [56, 56]],
    )
    base, rows, cols = 16, 8, 8
    length = base + rows * (cols + 1)
    tokens = [1, *[9] * length, 2]
    sized = Plain(data={"image_sizes": Plain(data=[56, 56])}, mm_position=None, identifier="seen")
    sizes = Memory(2)
    found = visual_positions(config, tokens, [sized], sizes)
    newlines = {1 + base + row * (cols + 1) + cols for row in range(rows)}
    assert set(found) == set(range(1, 1 + length)) - newlines
    stripped = Plain(data=None, mm_position=None, identifier="seen")
    assert visual_positions(config, tokens, [stripped], sizes) == found  # its size is remembered
    stripped.identifier = "other"
    with pytest.raises(UnsupportedError, match="prefix cache"):
        visual_positions(config, tokens, [stripped], sizes)


def test_what_vllm_gives_the_image_processor_at_each_call_is_part_of_its_settings():
    settings = {"size": {"height": 9}, "do_resize": True, "backend": "pil"}
    given = {"use_fast": False, "size": {"height": 4}, "images_kwargs": {"do_resize": False}, "other": 1}
    called = _as_called(settings, Plain(multimodal_config=Plain(mm_processor_kwargs=given)))
    assert called == {"size": {"height": 4}, "do_resize": False, "backend": "pil"}
    assert _as_called(settings, Plain(multimodal_config=Plain(mm_processor_kwargs=None))) == settings
    assert given["images_kwargs"] == {"do_resize": False}
