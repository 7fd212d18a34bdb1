"""Greedy generations of a fixed length for tests, with the raw logits of every step."""

from __future__ import annotations

from typing import Any


def run(model: Any, inputs: dict[str, Any], *, steps: int, **options: Any) -> Any:
    """Exactly ``steps`` greedy tokens, as the object that ``generate`` returns."""
    return model.generate(
        **inputs,
        max_new_tokens=steps,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        eos_token_id=None,
        **options,
    )
