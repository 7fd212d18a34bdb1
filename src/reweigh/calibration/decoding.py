"""What a checkpoint's own generation settings do to greedy decoding, for the record of a calibration.

Calibration decodes greedily with what the checkpoint brings along; a repetition penalty or a banned word changes the
descriptions and so the candidates observed. Sampling and beams are switched off there and say nothing here.
"""

from __future__ import annotations

from typing import Any

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "max_time": (),
    "bad_words_ids": ([],),
    "sequence_bias": ({}, []),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_eos_token_id": (),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1,),
    "watermarking_config": (),
}
"""Settings that reach greedy decoding, each with the values that change nothing; None never does."""


def greedy_settings(generation_config: Any) -> dict[str, Any]:
    """The settings in effect that change greedy decoding, as plain values; empty for most checkpoints."""
    found = {name: _plain(getattr(generation_config, name, None)) for name in NEUTRAL}
    return {name: value for name, value in found.items() if value is not None and value not in NEUTRAL[name]}


def _plain(value: Any) -> Any:
    """The value as a page of JSON gives it back, so that a record read again equals a fresh one."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(inner) for key, inner in value.items()}
        return sorted(
            [_plain(key), _plain(inner)] for key, inner in value.items()
        )  # biases by token sequence
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
